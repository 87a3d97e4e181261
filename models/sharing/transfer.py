"""Bundles on their way: `push` sends one with its card, `pull` fetches one and verifies every byte.

Nothing from elsewhere is trusted: the manifest has its own digest, its names may not leave the
folder, each file must have its size and sha256, and only safetensors and JSON are read.

`find_model` finds a model by its address: a folder of this machine, or a URI, whose bundle is
copied here first.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from longtail.models.bundle import bundle as local
from longtail.models.bundle.bundle import Bundle, file_info, open_bundle
from longtail.models.bundle.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, FileInfo, Manifest
from longtail.models.bundle.registry import (
    CURRENT,
    STATE_NAME,
    Registry,
    RegistryState,
    state_from_json,
)
from longtail.models.errors import (
    BundleCorruptError,
    BundleError,
    BundleNotFoundError,
    BundleVersionError,
    ConfigError,
)
from longtail.models.files.durable import make_read_only, sync_tree
from longtail.models.platform import lock
from longtail.models.sharing.places import CHUNK_BYTES, OpenFile, Place, reaching

_DIGEST = re.compile("[0-9a-f]{8,64}")  # fewer could be found by trying
_Files: TypeAlias = Iterable[tuple[str, FileInfo]]
Track: TypeAlias = Callable[[_Files], _Files]
"""Yields the same files, and may show how far a transfer is."""


def push(bundle: Bundle, place: Place, where: str, card: str, *, replace: bool) -> bool:
    """Send a bundle and its card; return whether anything had to be sent.

    Args:
        bundle: Opened, so it is whole.
        place: Where to.
        where: What the place is called in messages.
        card: In Markdown.
        replace: Whether another bundle that lies there may be replaced.
    """
    there = _digest_at(place, where)
    if there == bundle.manifest.digest:
        return False
    if there is not None and not replace:
        raise BundleError(
            f"{where!r}: holds another bundle (digest {there[:12]}); replace it with --overwrite, "
            "or choose another place"
        )
    names = [MANIFEST_NAME, *bundle.manifest.files]
    place.write({name: bundle.folder / name for name in names}, card)
    return True


def pull(
    place: Place,
    where: str,
    registry: Registry,
    *,
    activate: bool,
    digest: str = "",
    track: Track = iter,
    check: Callable[[Bundle], object] = lambda _: None,
) -> int:
    """Fetch a bundle into a registry, and return its version; one that is there is found again.

    A pull that was stopped keeps the files that it has, and goes on with the others.

    Args:
        place: Where it lies.
        where: What the place is called in messages.
        registry: Where to.
        activate: Whether `current` names it then.
        digest: How its digest must begin, at least 8 digits; "": any.
        track: Yields the files as they are begun.
        check: Gets the bundle before it has a version, and raises BundleError where it is unfit.
    """
    if digest and not _DIGEST.fullmatch(digest):
        raise ConfigError(
            f"digest {digest!r}: expected 8 to 64 digits of 0-9 and a-f; take them from the "
            "publisher"
        )
    with place.reading() as open_file:
        manifest, text = read_manifest(open_file, where)
        if not manifest.digest.startswith(digest):
            raise BundleCorruptError(
                f"{where!r}: has the digest {manifest.digest}, expected one that begins with "
                f"{digest!r}; ask its publisher which is right"
            )
        incoming = registry.folder / f".pulled-{manifest.digest[:16]}"
        fetch(open_file, manifest, text, incoming, where, track)

    def move(folder: Path) -> Manifest:
        incoming.rename(folder)
        try:
            bundle = open_bundle(folder)
            check(bundle)
            return bundle.manifest
        except (BundleError, ConfigError) as error:
            shutil.rmtree(folder)
            raise BundleCorruptError(f"{where!r}: {error}") from error

    return registry.publish(move, activate=activate, action="pull")


def read_manifest(open_file: OpenFile, where: str) -> tuple[Manifest, bytes]:
    """Return the manifest of a bundle elsewhere, checked, and its bytes."""
    try:
        file = open_file(MANIFEST_NAME)
    except KeyError:
        raise BundleNotFoundError(
            f"{where!r}: no {MANIFEST_NAME} there, so it is no bundle; check the address"
        ) from None
    try:
        text = _read_all(file, where)
    except ValueError as error:
        raise BundleCorruptError(f"{where!r}: {MANIFEST_NAME}: {error}") from error
    manifest = Manifest.from_json(text.decode("utf-8", "replace"), where)
    for name in manifest.files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
            raise BundleCorruptError(f"{where}: the manifest names a file outside it: {name!r}")
    return manifest, text


def read_state(open_file: OpenFile, where: str) -> RegistryState:
    """Return what the file of a registry elsewhere says."""
    try:
        found: RegistryState = state_from_json(_read_all(open_file(STATE_NAME), where))
    except KeyError:
        raise BundleNotFoundError(
            f"{where}: there is no {STATE_NAME}; publish a version to it, or check the address"
        ) from None
    except ValueError as error:
        raise BundleError(
            f"{where}: {STATE_NAME} can't be read ({error}); mend it there, or publish a version "
            "to it; until then a service keeps what it has"
        ) from error
    return found


def fetch(
    open_file: OpenFile,
    manifest: Manifest,
    text: bytes,
    folder: Path,
    where: str,
    track: Track = iter,
) -> None:
    """Fetch a bundle into a folder of a registry, but for the files that are there already."""
    needed = sum(info.size_bytes for info in manifest.files.values())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise BundleError(
                f"registry {str(folder.parent)!r}: the bundle has {needed:,} bytes and {free:,} "
                "are free; make room"
            )
        for name, info in track(manifest.files.items()):
            path = folder / name
            if not (path.is_file() and file_info(path) == info):
                _fetch_file(open_file, name, info, path, where)
        (folder / MANIFEST_NAME).write_bytes(text)
        sync_tree(folder)
    except OSError as error:
        raise BundleError(
            f"registry {str(folder.parent)!r}: a copy can't be stored ({error}); make room, then "
            "ask for it again"
        ) from error


def _fetch_file(open_file: OpenFile, name: str, info: FileInfo, path: Path, where: str) -> None:
    try:
        file = open_file(name)
    except KeyError:
        raise BundleCorruptError(f"{where!r}: file {name!r} is missing there") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with closing(file), path.open("wb") as target:
        while size <= info.size_bytes and (chunk := _read(file, f"{where}: {name}")):
            size += len(chunk)
            digest.update(chunk)
            target.write(chunk)
    if size != info.size_bytes or digest.hexdigest() != info.sha256:
        path.unlink()
        raise BundleCorruptError(
            f"{where!r}: file {name!r} is not what the manifest says (sha256 "
            f"{info.sha256[:12]}..., {info.size_bytes} bytes); push the bundle again"
        )


def _read_all(file: Any, where: str) -> bytes:
    with closing(file), reaching(where):
        content: bytes = file.read(MAX_MANIFEST_BYTES + 1)
    if len(content) > MAX_MANIFEST_BYTES:
        raise ValueError(f"got over {MAX_MANIFEST_BYTES} bytes; expected a smaller file")
    return content


def _read(file: Any, where: str) -> bytes:
    with reaching(where):
        chunk: bytes = file.read(CHUNK_BYTES)
    return chunk


def _digest_at(place: Place, where: str) -> str | None:
    try:
        with place.reading() as open_file:
            return read_manifest(open_file, where)[0].digest
    except BundleNotFoundError:
        return None
    except (BundleVersionError, BundleCorruptError):
        return "unknown"


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model of which only the manifest was read.

    Attributes:
        manifest: What the bundle says of itself.
        version: Its number in the registry; None: the address is that of a bundle.
        open: Verifies and opens the bundle. One that lies elsewhere is first copied to the cache
            (`longtail` in XDG_CACHE_HOME, or in ~/.cache), by one process of the machine.
    """

    manifest: Manifest
    version: int | None
    open: Callable[[], local.Bundle]


def find_model(source: str | Path, version: int | str = CURRENT) -> FoundModel:
    """Find a model by its address.

    Args:
        source: The folder of a registry or of a bundle; a URI of either ("s3://bucket/registry",
            "hf://owner/name"), or a zip file (see `longtail.models.sharing.places.Place`).
        version: A version's number, or "current"; of a registry.
    """
    address, folder = str(source), Path(source)
    if "://" in address or address.endswith(".zip"):
        return _find_elsewhere(address, version)
    if (folder / MANIFEST_NAME).is_file():
        _refuse_version(address, version)
        number = None
    else:
        number = Registry(folder).resolve(version)
        folder /= str(number)
    return FoundModel(local.read_manifest(folder), number, partial(local.open_bundle, folder))


def _find_elsewhere(uri: str, version: int | str) -> FoundModel:
    place, number, prefix = Place(uri), None, ""
    with place.reading() as open_file:
        try:
            manifest, text = read_manifest(open_file, uri)
            _refuse_version(uri, version)
        except BundleNotFoundError:
            number = version if version != CURRENT else read_state(open_file, repr(uri)).current
            prefix = f"{number}/"
            where = f"{uri}, version {number}"
            manifest, text = read_manifest(lambda name: open_file(prefix + name), where)

    def copy(folder: Path) -> None:
        with place.reading() as open_any:
            fetch(lambda name: open_any(prefix + name), manifest, text, folder, uri)

    version_found = None if number is None else int(number)
    return FoundModel(manifest, version_found, partial(_open_copy, manifest.digest, copy))


def _open_copy(digest: str, copy: Callable[[Path], None]) -> local.Bundle:
    """Open the copy in the cache, which is made unless another process has made it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "longtail"
    folder, incoming = cache / digest, cache / f".{digest}"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f".{digest}.lock").open("ab") as file:
            lock(file)  # until the file is closed
            if not folder.is_dir():
                copy(incoming)
                make_read_only(incoming)
                incoming.rename(folder)
    except OSError as error:
        raise BundleError(
            f"cache {str(cache)!r}: a copy of the model can't be stored ({error}); let "
            "XDG_CACHE_HOME name a folder that can be written to"
        ) from error
    return local.open_bundle(folder)


def _refuse_version(address: str, version: int | str) -> None:
    if version != CURRENT:
        raise ConfigError(
            f"version is {version!r}, but {address!r} is one bundle, without versions; leave "
            "the version out, or give the address of the registry"
        )
