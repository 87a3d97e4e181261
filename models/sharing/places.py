"""Places where a bundle can lie: a Hugging Face repository, a folder behind a URI, a zip file.

All of them hold the same files: the bundle's own, and a model card beside them. Reading asks for
files by name, those of the manifest alone, so that whatever else lies there is never touched.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from longtail.models.bundle.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES
from longtail.models.errors import (
    BundleCorruptError,
    BundleError,
    BundleNotFoundError,
    ConfigError,
    LongtailError,
)

CARD_NAME = "README.md"
"""The model card, where Hugging Face looks for it."""
HUB_SCHEME = "hf://"
_HUB_NAME = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # so that equal bundles make equal zip files
_CHUNK_BYTES = 2**22
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Others are unpacked by the whole input at a time: 3 KB of bzip2 can be gigabytes."""


class PlaceError(BundleError):
    """A place can't be reached, or refuses what is asked of it."""


@runtime_checkable
class ReadableFile(Protocol):
    """A file of any file system, opened to read its bytes."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes; none at the end."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


OpenFile: TypeAlias = Callable[[str], ReadableFile]
"""Opens a file by its name in the bundle; raises KeyError where there is none."""


@runtime_checkable
class Place(Protocol):
    """Where a bundle lies, or will lie."""

    def reading(self) -> AbstractContextManager[OpenFile]:
        """Give what opens files."""
        ...

    def write(self, files: Mapping[str, Path], card: str, advance: Callable[[int], object]) -> None:
        """Store files and card; whoever reads meanwhile sees no part of a bundle as a whole.

        Args:
            files: By name in the bundle, the manifest among them.
            card: Of the model, in Markdown.
            advance: Is told how many bytes were stored.
        """
        ...


def place_of(uri: str) -> Place:
    """Return the place that a URI or a path names.

    Args:
        uri: "hf://owner/name" or "hf://owner/name@revision"; the path of a zip file; any URI of
            fsspec ("s3://...", "file:///..."), of a zip file where it ends in ".zip"; a folder.

    Raises:
        ConfigError: It names none.
        PlaceError: fsspec can't reach it.
    """
    if uri.startswith(HUB_SCHEME):
        return HubRepository.of_uri(uri)
    from fsspec.core import url_to_fs

    try:
        files, path = url_to_fs(uri)
    except (ValueError, ImportError) as error:
        raise ConfigError(
            f"{uri!r}: {error}; expected a path, 'hf://owner/name', or a URI of fsspec"
        ) from error
    except Exception as error:  # each file system has its own
        raise PlaceError(_unreachable(uri, error)) from error
    return (ZipFile if path.endswith(".zip") else Folder)(uri, files, path)


class Folder:
    """A folder of a file system that fsspec knows."""

    def __init__(self, uri: str, files: Any, path: str) -> None:
        """Name it; nothing is reached yet.

        Args:
            uri: As the user wrote it.
            files: The file system of fsspec.
            path: The folder's path in it.
        """
        self._uri = uri
        self._files = files
        self._path = path.rstrip("/")

    @contextmanager
    def reading(self) -> Iterator[OpenFile]:
        """Give what opens a file of the folder.

        Yields:
            See `Place`.
        """
        with reaching(self._uri):
            self._files.invalidate_cache()

        def open_file(name: str) -> ReadableFile:
            path = f"{self._path}/{name}"
            with reaching(self._uri):
                if not self._files.isfile(path):
                    raise KeyError(name)
                file: ReadableFile = self._files.open(path, "rb")
                return file

        yield open_file

    def write(self, files: Mapping[str, Path], card: str, advance: Callable[[int], object]) -> None:
        """Store files and card, the manifest last: without it the folder is no bundle."""
        manifest = f"{self._path}/{MANIFEST_NAME}"
        ordered = sorted(files, key=lambda name: name == MANIFEST_NAME)
        with reaching(self._uri):
            if self._files.exists(manifest):
                self._files.rm_file(manifest)
            self._store(CARD_NAME, io.BytesIO(card.encode()), int)
            for name in ordered:
                with files[name].open("rb") as source:
                    self._store(name, source, advance)

    def _store(self, name: str, source: ReadableFile, advance: Callable[[int], object]) -> None:
        path = f"{self._path}/{name}"
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        with self._files.open(path, "wb") as target:
            _copy(source, target, advance)


class ZipFile:
    """A zip file of a file system that fsspec knows."""

    def __init__(self, uri: str, files: Any, path: str) -> None:
        """Name it; see `Folder`."""
        self._uri = uri
        self._files = files
        self._path = path

    @contextmanager
    def reading(self) -> Iterator[OpenFile]:
        """Give what opens a file of the archive; all may lie in one folder of it.

        Yields:
            See `Place`.

        Raises:
            BundleNotFoundError: There is no such archive.
            BundleCorruptError: It is none, or damaged.
        """
        with ExitStack() as stack, reaching(self._uri):
            if not self._files.isfile(self._path):
                raise BundleNotFoundError(f"{self._uri!r}: there is no such file; check the path")
            file = stack.enter_context(self._files.open(self._path, "rb"))
            try:
                archive = stack.enter_context(zipfile.ZipFile(file))
            except zipfile.BadZipFile as error:
                raise BundleCorruptError(
                    f"{self._uri!r}: is no zip file, or a damaged one ({error}); fetch it again"
                ) from error
            names = set(archive.namelist())
            folder = _folder_of_manifest(names)

            def open_file(name: str) -> ReadableFile:
                if folder + name not in names:
                    raise KeyError(name)
                entry = archive.getinfo(folder + name)
                _check_entry(entry, f"{self._uri!r}: file {name!r}")
                return archive.open(entry)

            yield open_file

    def write(self, files: Mapping[str, Path], card: str, advance: Callable[[int], object]) -> None:
        """Store files and card under another name first; equal bundles make equal bytes."""
        partial = f"{self._path}.part"
        with reaching(self._uri):
            if parent := self._path.rpartition("/")[0]:
                self._files.makedirs(parent, exist_ok=True)
            with (
                self._files.open(partial, "wb") as target,
                zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
            ):
                archive.writestr(_entry(CARD_NAME), card)
                for name in sorted(files):
                    with (
                        files[name].open("rb") as source,
                        archive.open(_entry(name), "w", force_zip64=True) as entry,
                    ):
                        _copy(source, entry, advance)
            self._files.mv(partial, self._path)


class HubRepository:
    """A model repository of the Hugging Face Hub; the token is the one that its tools use."""

    def __init__(self, repository: str, revision: str | None) -> None:
        """Name it.

        Args:
            repository: "owner/name".
            revision: A branch, tag or commit; None: the main branch.
        """
        self._repository = repository
        self._revision = revision
        self._uri = f"{HUB_SCHEME}{repository}" + (f"@{revision}" if revision else "")

    @classmethod
    def of_uri(cls, uri: str) -> HubRepository:
        """Return the repository of "hf://owner/name" or "hf://owner/name@revision".

        Raises:
            ConfigError: It is another one.
        """
        found = _HUB_NAME.fullmatch(uri.removeprefix(HUB_SCHEME))
        if found is None:
            raise ConfigError(
                f"{uri!r}: expected 'hf://owner/name' or 'hf://owner/name@revision'; correct it"
            )
        return cls(found["repository"], found["revision"])

    @contextmanager
    def reading(self) -> Iterator[OpenFile]:
        """Give what opens a file; the Hub's own cache keeps what was fetched once.

        Yields:
            See `Place`.
        """
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import (
            EntryNotFoundError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )

        missing = (EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError)

        def open_file(name: str) -> ReadableFile:
            with reaching(self._uri):
                try:
                    path = hf_hub_download(self._repository, name, revision=self._revision)
                except LocalEntryNotFoundError:  # the Hub can't be reached: nothing is known
                    raise
                except missing as error:
                    raise KeyError(name) from error
            return Path(path).open("rb")

        yield open_file

    def write(self, files: Mapping[str, Path], card: str, advance: Callable[[int], object]) -> None:
        """Store files and card in one commit; a repository that is not there is made, private."""
        from huggingface_hub import CommitOperationAdd, HfApi

        operations = [CommitOperationAdd(CARD_NAME, card.encode())]
        operations += [CommitOperationAdd(name, str(path)) for name, path in sorted(files.items())]
        with reaching(self._uri):
            hub = HfApi(library_name="longtail")
            hub.create_repo(self._repository, private=True, exist_ok=True)
            hub.create_commit(
                self._repository,
                operations,
                commit_message="A Longtail bundle",
                revision=self._revision,
            )
        advance(sum(path.stat().st_size for path in files.values()))


def _folder_of_manifest(names: set[str]) -> str:
    found = [name for name in names if name.rpartition("/")[2] == MANIFEST_NAME]
    return found[0].removesuffix(MANIFEST_NAME) if len(found) == 1 else ""


def _check_entry(entry: zipfile.ZipInfo, where: str) -> None:
    """Refuse a file of an archive that can't be unpacked piece by piece.

    Raises:
        BundleCorruptError: It is of another method than those, or a manifest of too many bytes.
    """
    if entry.compress_type not in _METHODS:
        raise BundleCorruptError(
            f"{where} is compressed by method {entry.compress_type}, expected stored or deflated "
            "(0 or 8); pack it again"
        )
    is_manifest = entry.filename.rpartition("/")[2] == MANIFEST_NAME
    if is_manifest and entry.file_size > MAX_MANIFEST_BYTES:
        raise BundleCorruptError(
            f"{where} has {entry.file_size} bytes, expected at most {MAX_MANIFEST_BYTES}"
        )


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _EARLIEST)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _copy(source: Any, target: Any, advance: Callable[[int], object]) -> None:
    while chunk := source.read(_CHUNK_BYTES):
        target.write(chunk)
        advance(len(chunk))


@contextmanager
def reaching(uri: str) -> Iterator[None]:
    """Say of any failure that the place is the reason: every file system raises its own.

    Raises:
        LongtailError: The same again.
        KeyError: The same again: there is no such file.
        PlaceError: For anything else.
    """
    try:
        yield
    except (LongtailError, KeyError):
        raise
    except Exception as error:
        raise PlaceError(_unreachable(uri, error)) from error


def _unreachable(uri: str, error: Exception) -> str:
    reason = str(error).strip().partition("\n")[0] or "no reason was given"
    return (
        f"{uri!r}: can't be reached, read or written ({type(error).__name__}: {reason}); check the "
        "address, the network and your rights there"
    )
