"""Bundles on their way: `push` sends one with its card, `pull` and `find_model` fetch one.

Nothing from elsewhere is trusted: the manifest has its own digest, its names may not leave the
folder, and a copy is verified (see `open_bundle`) before it gets a name that anyone reads.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tqdm import tqdm

from longtail.models.bundle import bundle as local
from longtail.models.bundle.bundle import Bundle, open_bundle
from longtail.models.bundle.manifest import MANIFEST_NAME, Manifest
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
from longtail.models.platform import lock, sync_folder
from longtail.models.sharing.places import Place


def push(bundle: Bundle, uri: str, card: str, *, replace: bool) -> bool:
    """Send a bundle and its card, in Markdown; return whether anything had to be sent.

    Another bundle that is there is only replaced if asked.
    """
    place = Place(uri)
    try:
        there = _read_manifest(place)[0].digest
    except BundleNotFoundError:
        there = ""
    except (BundleVersionError, BundleCorruptError):
        there = "unknown"
    if there == bundle.manifest.digest:
        return False
    if there and not replace:
        told = f"{uri!r}: holds another bundle (digest {there[:12]})"
        raise BundleError(f"{told}; replace it with --overwrite, or choose another place")
    place.write({x: bundle.folder / x for x in (MANIFEST_NAME, *bundle.manifest.files)}, card)
    return True


def pull(
    uri: str,
    registry: Registry,
    *,
    activate: bool,
    digest: str = "",
    check: Callable[[Bundle], object] | None = None,
) -> int:
    """Fetch a bundle into a registry, and return its version; one that is there is found again.

    Args:
        uri: URI of a `Place`.
        registry: Where to.
        activate: Whether `current` names it then.
        digest: How its digest must begin, at least 8 digits; "": any.
        check: Gets the bundle before it has a version, and raises where it is unfit.
    """
    if digest and not re.fullmatch("[0-9a-f]{8,64}", digest):  # fewer could be found by trying
        raise ConfigError(f"digest {digest!r}: expected 8 to 64 digits of 0-9 and a-f")
    incoming = registry.folder / f".pulled-{os.getpid()}"
    try:
        fetch(Place(uri), incoming, digest=digest)
        return registry.publish(
            lambda folder: local.read_manifest(incoming.rename(folder)),
            activate=activate,
            action="pull",
            check=check,
        )
    finally:
        shutil.rmtree(incoming, ignore_errors=True)


def fetch(place: Place, folder: Path, prefix: str = "", *, digest: str = "") -> None:
    """Fetch a bundle to a folder, which appears whole and verified, or not at all.

    Args:
        place: The bundle, or a registry that has it.
        folder: Where to; it must not exist.
        prefix: The bundle's folder there, such as "2/".
        digest: How its digest must begin.
    """
    manifest, text = _read_manifest(place, prefix)
    if not manifest.digest.startswith(digest):
        raise BundleCorruptError(
            f"{place.uri!r}: has the digest {manifest.digest}, expected one that begins with "
            f"{digest!r}; ask its publisher which is right"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (
        place.reading() as read,
        TemporaryDirectory(prefix=".fetching-", dir=folder.parent) as temporary,
    ):
        incoming = Path(temporary) / folder.name
        files = tqdm(manifest.files.items(), "fetched", unit=" files", disable=None)
        try:
            for name, info in files:
                (incoming / name).parent.mkdir(parents=True, exist_ok=True)
                with (incoming / name).open("wb") as target:
                    target.writelines(read(prefix + name, info.size_bytes))
            (incoming / MANIFEST_NAME).write_bytes(text)
            sync_tree(incoming)
            open_bundle(incoming)
        except (BundleNotFoundError, BundleCorruptError) as error:
            raise BundleCorruptError(f"{place.uri!r}: {error}") from error
        make_read_only(incoming)
        incoming.rename(folder)
        sync_folder(folder.parent)


def read_state(place: Place) -> RegistryState:
    """Return what the file of a registry elsewhere says."""
    content = place.content(STATE_NAME)
    try:
        found: RegistryState = state_from_json(content)
    except ValueError as error:
        raise BundleError(
            f"{place.uri!r}: {STATE_NAME} can't be read ({error}); mend it there, or publish a "
            "version to it; until then a service keeps what it has"
        ) from error
    return found


def _read_manifest(place: Place, prefix: str = "") -> tuple[Manifest, bytes]:
    """Return the manifest of a bundle elsewhere, checked, and its bytes."""
    where = f"{place.uri!r} {prefix}".rstrip()
    text = place.content(prefix + MANIFEST_NAME)
    manifest = Manifest.from_json(text.decode("utf-8", "replace"), where)
    for name in manifest.files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
            raise BundleCorruptError(f"{where}: the manifest names a file outside it: {name!r}")
    return manifest, text


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
    number: int | None = None
    if "://" in address or address.endswith(".zip"):
        place, prefix = Place(address), ""
        try:
            manifest = _read_manifest(place)[0]
        except BundleNotFoundError:
            found = version if version != CURRENT else read_state(place).current
            prefix = f"{found}/"
            manifest = _read_manifest(place, prefix)[0]
            number = int(found)  # type: ignore[arg-type]  # there is such a folder
        open_it = partial(_open_copy, place, prefix, manifest.digest)
    else:
        if not (folder / MANIFEST_NAME).is_file():
            number = Registry(folder).resolve(version)
            folder /= str(number)
        manifest, open_it = local.read_manifest(folder), partial(open_bundle, folder)
    if number is None and version != CURRENT:
        raise ConfigError(
            f"version is {version!r}, but {address!r} is one bundle, without versions; leave "
            "the version out, or give the address of the registry"
        )
    return FoundModel(manifest, number, open_it)


def _open_copy(place: Place, prefix: str, digest: str) -> Bundle:
    """Open the copy in the cache, which is made unless another process has made it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "longtail"
    folder, lock_file = cache / digest, cache / f".{digest}.lock"
    with place.reaching():
        cache.mkdir(parents=True, exist_ok=True)
        with lock_file.open("ab") as file:
            lock(file)  # until the file is closed
            if not folder.is_dir():
                fetch(place, folder, prefix, digest=digest)
    return open_bundle(folder)
