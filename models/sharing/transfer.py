"""Bundles on their way: `push` sends one with its card, `pull` fetches one and verifies every byte.

What comes from elsewhere is trusted in nothing: the manifest has its own digest, its names may not
leave the folder, each file must have its size and sha256, and only safetensors and JSON are read.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath

from longtail.models.bundle.bundle import Bundle, file_info, open_bundle
from longtail.models.bundle.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, FileInfo, Manifest
from longtail.models.bundle.registry import Registry
from longtail.models.errors import (
    BundleCorruptError,
    BundleError,
    BundleNotFoundError,
    BundleVersionError,
    ConfigError,
)
from longtail.models.files.durable import sync_tree
from longtail.models.sharing.places import OpenFile, Place, ReadableFile, reaching

_DIGEST = re.compile("[0-9a-f]{8,64}")  # fewer could be found by trying
_CHUNK_BYTES = 2**22
_Advance = Callable[[int], object]


def push(
    bundle: Bundle, place: Place, where: str, card: str, advance: _Advance = int, *, replace: bool
) -> bool:
    """Send a bundle and its card; return whether anything had to be sent.

    Args:
        bundle: Opened, so it is whole.
        place: Where to.
        where: What the place is called in messages.
        card: In Markdown.
        advance: Is told how many bytes were stored.
        replace: Whether another bundle that lies there may be replaced.

    Raises:
        BundleError: Another one lies there, or the place can't be reached.
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
    place.write({name: bundle.folder / name for name in names}, card, advance)
    return True


def pull(
    place: Place,
    where: str,
    registry: Registry,
    *,
    activate: bool,
    digest: str = "",
    started: Callable[[Manifest], _Advance] = lambda _: int,
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
        started: Gets the manifest when the files are begun, and returns what is told how many
            bytes have come.
        check: Gets the bundle before it has a version, and raises BundleError where it is unfit.

    Raises:
        ConfigError: The digest asked for is none.
        BundleNotFoundError: There is none.
        BundleVersionError: It is of another format.
        BundleCorruptError: It is not as it was written, or has another digest.
        BundleError: The place can't be reached, or there is no room here.
    """
    if digest and not _DIGEST.fullmatch(digest):
        raise ConfigError(
            f"digest {digest!r}: expected 8 to 64 digits of 0-9 and a-f; take them from the "
            "publisher"
        )
    with place.reading() as open_file:
        manifest, text = read_manifest_from(open_file, where)
        if not manifest.digest.startswith(digest):
            raise BundleCorruptError(
                f"{where!r}: has the digest {manifest.digest}, expected one that begins with "
                f"{digest!r}; ask its publisher which is right"
            )
        incoming = registry.folder / f".pulled-{manifest.digest[:16]}"
        with _room_for(manifest, registry.folder):
            incoming.mkdir(parents=True, exist_ok=True)
            fetch_files(open_file, manifest, incoming, where, started(manifest))
            (incoming / MANIFEST_NAME).write_bytes(text)
            sync_tree(incoming)

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


def read_manifest_from(open_file: OpenFile, where: str) -> tuple[Manifest, bytes]:
    """Return the manifest of a bundle elsewhere, checked, and its bytes.

    Raises:
        BundleNotFoundError: There is none.
        BundleVersionError: It is of another format.
        BundleCorruptError: It is not as it was written, or names a file outside the bundle.
    """
    try:
        file = open_file(MANIFEST_NAME)
    except KeyError:
        raise BundleNotFoundError(
            f"{where!r}: no {MANIFEST_NAME} there, so it is no bundle; check the address"
        ) from None
    with closing(file):
        text = file.read(MAX_MANIFEST_BYTES + 1)
    if len(text) > MAX_MANIFEST_BYTES:
        raise BundleCorruptError(f"{where!r}: {MANIFEST_NAME} has over {MAX_MANIFEST_BYTES} bytes")
    manifest = Manifest.from_json(text.decode("utf-8", "replace"), where)
    check_names(manifest.files, where)
    return manifest, text


def check_names(names: Iterable[str], where: str) -> None:
    """Refuse names of files that lie outside the bundle's folder.

    Raises:
        BundleCorruptError: One does.
    """
    for name in names:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
            raise BundleCorruptError(f"{where}: the manifest names a file outside it: {name!r}")


def fetch_files(
    open_file: OpenFile, manifest: Manifest, folder: Path, where: str, advance: _Advance
) -> None:
    """Fetch the files of a manifest into a folder, but for those that are there already.

    Raises:
        BundleCorruptError: One is missing, or has another size or sha256; it is not kept.
    """
    for name, info in manifest.files.items():
        path = folder / name
        if path.is_file() and file_info(path) == info:
            advance(info.size_bytes)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = open_file(name)
        except KeyError:
            raise BundleCorruptError(f"{where!r}: file {name!r} is missing there") from None
        with closing(file):
            _fetch(file, path, info, f"{where!r}: file {name!r}", advance)


def _fetch(file: ReadableFile, path: Path, info: FileInfo, where: str, advance: _Advance) -> None:
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as target:
        while chunk := _read(file, where):
            size += len(chunk)
            if size > info.size_bytes:
                break
            digest.update(chunk)
            target.write(chunk)
            advance(len(chunk))
    if size != info.size_bytes or digest.hexdigest() != info.sha256:
        path.unlink()
        raise BundleCorruptError(
            f"{where} is not what the manifest says (sha256 {info.sha256[:12]}..., "
            f"{info.size_bytes} bytes); push the bundle again"
        )


def _read(file: ReadableFile, where: str) -> bytes:
    """Return the next bytes of a file elsewhere; none at its end.

    Raises:
        BundleCorruptError: It lies in a damaged zip file.
    """
    with reaching(where):
        try:
            return file.read(_CHUNK_BYTES)
        except zipfile.BadZipFile as error:
            raise BundleCorruptError(f"{where} is damaged ({error}); fetch it again") from error


@contextmanager
def _room_for(manifest: Manifest, folder: Path) -> Iterator[None]:
    """Refuse to begin where there is no room, and say of a failure that the disk is the reason.

    Raises:
        BundleError: There is no room, or something can't be stored.
    """
    needed = sum(info.size_bytes for info in manifest.files.values())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise BundleError(
                f"registry {str(folder)!r}: the bundle has {needed:,} bytes and {free:,} are free; "
                "make room, then pull again"
            )
        yield
    except OSError as error:
        raise BundleError(
            f"registry {str(folder)!r}: a copy can't be stored ({error}); make room, then pull "
            "again"
        ) from error


def _digest_at(place: Place, where: str) -> str | None:
    """Return the digest of the bundle that lies at a place; None where there is none."""
    try:
        with place.reading() as open_file:
            return read_manifest_from(open_file, where)[0].digest
    except (BundleNotFoundError, FileNotFoundError):
        return None
    except (BundleVersionError, BundleCorruptError):
        return "unknown"
