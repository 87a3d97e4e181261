"""Bundles on their way: `push` sends one with its card, `pull` and `find_model` fetch one.

Nothing from elsewhere is trusted: the manifest has its own digest, its names may not leave the
folder, and a copy is verified (see `open_bundle`) before it gets a name that anyone reads.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeAlias

from longtail.models.bundle import bundle as local
from longtail.models.bundle.bundle import Bundle, open_bundle
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
    ignore,
)
from longtail.models.files.durable import make_read_only, sync_tree
from longtail.models.platform import lock
from longtail.models.sharing.places import OpenFile, Place, reaching

_CHUNK_BYTES = 2**22
_Files: TypeAlias = Iterable[tuple[str, FileInfo]]


def push(bundle: Bundle, uri: str, card: str, *, replace: bool) -> bool:
    """Send a bundle and its card; return whether anything had to be sent.

    Args:
        bundle: Opened, so it is whole.
        uri: URI of a `Place`.
        card: In Markdown.
        replace: Whether another bundle may be replaced there.
    """
    place = Place(uri)
    try:
        with place.reading() as open_file:
            there = read_manifest(open_file, uri)[0].digest
    except BundleNotFoundError:
        there = ""
    except (BundleVersionError, BundleCorruptError):
        there = "unknown"
    if there == bundle.manifest.digest:
        return False
    if there and not replace:
        raise BundleError(
            f"{uri!r}: holds another bundle (digest {there[:12]}); replace it with --overwrite, "
            "or choose another place"
        )
    place.write({x: bundle.folder / x for x in (MANIFEST_NAME, *bundle.manifest.files)}, card)
    return True


def pull(
    uri: str,
    registry: Registry,
    *,
    activate: bool,
    digest: str = "",
    track: Callable[[_Files], _Files] = iter,
    check: Callable[[Bundle], object] = ignore,
) -> int:
    """Fetch a bundle into a registry, and return its version; one that is there is found again.

    Args:
        uri: URI of a `Place`.
        registry: Where to.
        activate: Whether `current` names it then.
        digest: How its digest must begin, at least 8 digits; "": any.
        track: Yields the files as they are begun.
        check: Gets the bundle before it has a version, and raises BundleError where it is unfit.
    """
    if digest and not re.fullmatch("[0-9a-f]{8,64}", digest):  # fewer could be found by trying
        raise ConfigError(f"digest {digest!r}: expected 8 to 64 digits of 0-9 and a-f")
    incoming = registry.folder / f".pulled-{os.getpid()}"
    try:
        with Place(uri).reading() as open_file:
            bundle = fetch(open_file, incoming, uri, digest, track)
        check(bundle)

        def move(folder: Path) -> Manifest:
            incoming.rename(folder)
            return bundle.manifest

        return registry.publish(move, activate=activate, action="pull")
    except (BundleCorruptError, ConfigError) as error:
        raise BundleCorruptError(f"{uri!r}: {error}") from error
    finally:
        shutil.rmtree(incoming, ignore_errors=True)


def read_manifest(open_file: OpenFile, where: str) -> tuple[Manifest, bytes]:
    """Return the manifest of a bundle elsewhere, checked, and its bytes."""
    try:
        text = _read_all(open_file, MANIFEST_NAME, where)
    except KeyError:
        raise BundleNotFoundError(
            f"{where!r}: no {MANIFEST_NAME} there, so it is no bundle; check the address"
        ) from None
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
        found: RegistryState = state_from_json(_read_all(open_file, STATE_NAME, where))
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
    folder: Path,
    where: str,
    digest: str = "",
    track: Callable[[_Files], _Files] = iter,
) -> Bundle:
    """Fetch a bundle into a new folder, and return it, verified.

    Args:
        open_file: Opens files of the bundle.
        folder: Temporary; the caller removes it where this fails.
        where: Names the place in messages.
        digest: How its digest must begin.
        track: Yields the files as they are begun.
    """
    manifest, text = read_manifest(open_file, where)
    if not manifest.digest.startswith(digest):
        raise BundleCorruptError(
            f"{where!r}: has the digest {manifest.digest}, expected one that begins with "
            f"{digest!r}; ask its publisher which is right"
        )
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, info in track(manifest.files.items()):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with closing(open_file(name)) as file, (folder / name).open("wb") as target:
                left = info.size_bytes + 1  # a file that is longer is refused below
                while left and (chunk := _read(file, where, min(left, _CHUNK_BYTES))):
                    left -= target.write(chunk)
        (folder / MANIFEST_NAME).write_bytes(text)
        sync_tree(folder)
        return open_bundle(folder)
    except KeyError:
        raise BundleCorruptError(f"{where!r}: file {name!r} is missing there") from None
    except OSError as error:
        raise BundleError(
            f"{str(folder.parent)!r}: a copy can't be stored ({error}); make room, then ask for it "
            "again"
        ) from error


def _read_all(open_file: OpenFile, name: str, where: str) -> bytes:
    with closing(open_file(name)) as file:
        content = _read(file, where, MAX_MANIFEST_BYTES + 1)
    if len(content) > MAX_MANIFEST_BYTES:
        raise ValueError(f"got over {MAX_MANIFEST_BYTES} bytes; expected a smaller file")
    return content


def _read(file: Any, where: str, size: int) -> bytes:
    with reaching(where):
        content: bytes = file.read(size)
    return content


class FoundModel(NamedTuple):
    """A model of which only the manifest was read.

    Attributes:
        manifest: The bundle's manifest.
        version: Its number in the registry; None: the address is that of a bundle.
        open: Verifies and opens the bundle. One that is elsewhere is first copied to the cache
            (`longtail` in XDG_CACHE_HOME, or in ~/.cache), by one process of the machine.
    """

    manifest: Manifest
    version: int | None
    open: Callable[[], Bundle]


def find_model(source: str | Path, version: int | str = CURRENT) -> FoundModel:
    """Find a model by its address.

    Args:
        source: The folder of a registry or of a bundle, or a `Place` of either.
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
    return FoundModel(local.read_manifest(folder), number, partial(open_bundle, folder))


def _find_elsewhere(uri: str, version: int | str) -> FoundModel:
    place, number, prefix = Place(uri), None, ""
    with place.reading() as open_file:
        try:
            manifest = read_manifest(open_file, uri)[0]
            _refuse_version(uri, version)
        except BundleNotFoundError:
            found = version if version != CURRENT else read_state(open_file, repr(uri)).current
            prefix, where = f"{found}/", f"{uri}, version {found}"
            manifest = read_manifest(lambda name: open_file(prefix + name), where)[0]
            number = int(found)  # type: ignore[arg-type]  # there is such a folder
    return FoundModel(manifest, number, partial(_open_copy, place, prefix, uri, manifest.digest))


def _open_copy(place: Place, prefix: str, uri: str, digest: str) -> Bundle:
    """Open the copy in the cache, which is made unless another process has made it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "longtail"
    folder, incoming = cache / digest, cache / f".{digest}"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f".{digest}.lock").open("ab") as file:
            lock(file)  # until the file is closed
            if not folder.is_dir():
                with place.reading() as open_any:
                    fetch(lambda name: open_any(prefix + name), incoming, uri, digest)
                make_read_only(incoming)
                incoming.rename(folder)
    except OSError as error:
        raise BundleError(
            f"cache {str(cache)!r}: a copy of the model can't be stored ({error}); let "
            "XDG_CACHE_HOME name a folder that can be written to"
        ) from error
    return open_bundle(folder)


def _refuse_version(address: str, version: int | str) -> None:
    if version != CURRENT:
        raise ConfigError(
            f"version is {version!r}, but {address!r} is one bundle, without versions; leave "
            "the version out, or give the address of the registry"
        )
