"""Models by address: a folder of this machine, or a URI, whose bundle is copied here first."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from longtail.models.bundle import bundle as local
from longtail.models.bundle.manifest import MANIFEST_NAME, Manifest
from longtail.models.bundle.registry import CURRENT, Registry
from longtail.models.errors import BundleError, BundleNotFoundError, ConfigError
from longtail.models.files.durable import make_read_only
from longtail.models.platform import lock
from longtail.models.sharing.places import Place
from longtail.models.sharing.transfer import fetch, read_manifest, read_state


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

    Raises:
        BundleNotFoundError: There is no such version, or no bundle.
        BundleVersionError: The bundle is of another format.
        BundleCorruptError: The manifest is not as it was written.
        ConfigError: A version of a bundle is asked for, or there is no such kind of URI.
        BundleError: The address can't be reached.
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
