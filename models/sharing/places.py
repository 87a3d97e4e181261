"""Places where a bundle can lie: a Hugging Face repository, a folder behind a URI, a zip file.

All of them hold the same files: the bundle's own, and a model card beside them. fsspec reaches
them. Reading asks for files by name, those of the manifest alone: nothing else there is touched.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias
from urllib.parse import quote

from longtail.models.bundle.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES
from longtail.models.errors import BundleCorruptError, BundleError, ConfigError, LongtailError
from longtail.models.extras import require

CARD_NAME: Final = "README.md"
"""The model card, where Hugging Face looks for it."""
CHUNK_BYTES: Final = 2**22
_HUB_SCHEME = "hf://"
_HUB_NAME = re.compile(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Others are unpacked by the whole input at a time: 3 KB of bzip2 can be gigabytes."""

OpenFile: TypeAlias = Callable[[str], Any]
"""Opens a file by its name in the bundle; raises KeyError where there is none."""


class PlaceError(BundleError):
    """A place can't be reached, or refuses the request."""


class Place:
    """Where a bundle lies, or will lie."""

    def __init__(self, uri: str) -> None:
        """Name it; nothing is read yet.

        Args:
            uri: "hf://owner/name" or "hf://owner/name@revision"; the path of a zip file; any URI of
                fsspec ("s3://...", "file:///..."), of a zip file where it ends in ".zip"; a folder.
        """
        from fsspec.core import url_to_fs

        self._uri = uri
        self._hub_name: tuple[str, str | None] | None = None
        if uri.startswith(_HUB_SCHEME):
            require("sharing", repr(uri))
            self._hub_name = repository, revision = _hub_name(uri)
            uri = _HUB_SCHEME + repository + (f"@{quote(revision, safe='')}" if revision else "")
        with reaching(uri):
            try:
                self._files, path = url_to_fs(uri)
            except (ValueError, ImportError) as error:
                raise ConfigError(
                    f"{uri!r}: {error}; expected a path, 'hf://owner/name', or a URI of fsspec"
                ) from error
        self._path = path.rstrip("/")
        self._is_zip = path.endswith(".zip")

    @contextmanager
    def reading(self) -> Iterator[OpenFile]:
        """Give what opens a file; the files of an archive may all lie in one folder of it.

        Yields:
            See `OpenFile`.
        """
        with ExitStack() as stack:
            with reaching(self._uri):
                self._files.invalidate_cache()
                open_file = self._opener_of_zip(stack) if self._is_zip else self._open_file
            yield open_file

    def write(self, files: Mapping[str, Path], card: str) -> None:
        """Store files and card; whoever reads meanwhile sees no part of a bundle as a whole.

        Args:
            files: By name in the bundle, the manifest among them.
            card: Of the model, in Markdown.
        """
        with reaching(self._uri):
            if self._hub_name is not None:
                _commit(*self._hub_name, files, card)
                return
            with self._writing() as open_file:
                with open_file(CARD_NAME) as target:
                    target.write(card.encode())
                for name in sorted(files, key=lambda name: name == MANIFEST_NAME):
                    with files[name].open("rb") as source, open_file(name) as target:
                        shutil.copyfileobj(source, target, CHUNK_BYTES)

    def _opener_of_zip(self, stack: ExitStack) -> OpenFile:
        if not self._files.isfile(self._path):
            return dict[str, Any]().__getitem__  # nothing is there
        file = stack.enter_context(self._files.open(self._path, "rb"))
        archive = stack.enter_context(zipfile.ZipFile(file))
        folder = _checked_folder(archive, self._uri)
        return lambda name: archive.open(folder + name)

    def _open_file(self, name: str) -> Any:
        from fsspec.implementations.local import LocalFileSystem

        with reaching(self._uri):
            path = f"{self._path}/{name}"
            try:
                if isinstance(self._files, LocalFileSystem):
                    return _plain_file(path)
                return self._files.open(path, "rb")
            except (FileNotFoundError, IsADirectoryError) as error:
                raise KeyError(name) from error

    @contextmanager
    def _writing(self) -> Iterator[OpenFile]:
        """Give what opens files to write; a folder has no manifest from now on.

        Yields:
            See `OpenFile`.
        """
        if self._is_zip:
            self._files.makedirs(self._files._parent(self._path), exist_ok=True)
            with (
                self._files.open(self._path, "wb") as file,
                zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
            ):
                yield partial(archive.open, mode="w", force_zip64=True)
            return
        if self._files.exists(f"{self._path}/{MANIFEST_NAME}"):
            self._files.rm_file(f"{self._path}/{MANIFEST_NAME}")

        def open_file(name: str) -> Any:
            path = f"{self._path}/{name}"
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            return self._files.open(path, "wb")

        yield open_file


def _hub_name(uri: str) -> tuple[str, str | None]:
    # Return the repository and the revision of "hf://owner/name@revision".
    found = _HUB_NAME.fullmatch(uri.removeprefix(_HUB_SCHEME))
    if found is None:
        raise ConfigError(
            f"{uri!r}: expected 'hf://owner/name' or 'hf://owner/name@revision'; correct it"
        )
    return found[1], found[2]


def _commit(repository: str, revision: str | None, files: Mapping[str, Path], card: str) -> None:
    """Store files and card in one commit; a repository that is not there is made, private."""
    from huggingface_hub import CommitOperationAdd, HfApi

    operations = [CommitOperationAdd(CARD_NAME, card.encode())]
    operations += [CommitOperationAdd(name, str(path)) for name, path in sorted(files.items())]
    hub = HfApi(library_name="longtail")
    hub.create_repo(repository, private=True, exist_ok=True)
    message = "A Longtail bundle"
    hub.create_commit(repository, operations, commit_message=message, revision=revision)


def _checked_folder(archive: zipfile.ZipFile, uri: str) -> str:
    # Return what the name of each file of a bundle in an archive begins with.
    found = []
    for entry in archive.infolist():
        where = f"{uri!r}: file {entry.filename!r}"
        if entry.compress_type not in _METHODS:
            raise BundleCorruptError(
                f"{where} is compressed by method {entry.compress_type}, expected stored or "
                "deflated (0 or 8); pack it again"
            )
        if entry.filename.rpartition("/")[2] == MANIFEST_NAME:
            found.append(entry.filename.removesuffix(MANIFEST_NAME))
            if entry.file_size > MAX_MANIFEST_BYTES:
                raise BundleCorruptError(
                    f"{where} has {entry.file_size} bytes, expected at most {MAX_MANIFEST_BYTES}"
                )
    return found[0] if len(found) == 1 else ""


def _plain_file(path: str) -> BinaryIO:
    """Open a file of this machine without waiting for the writer of a pipe."""
    flags = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # no system has both
    file = os.fdopen(os.open(path, os.O_RDONLY | flags), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise BundleCorruptError(f"{path!r}: is a pipe or a device, expected a file; replace it")
    return file


@contextmanager
def reaching(uri: str) -> Iterator[None]:
    """Say of any failure that the place is the reason: every file system raises its own."""
    try:
        yield
    except (LongtailError, KeyError):
        raise
    except (zipfile.BadZipFile, zlib.error) as error:
        raise BundleCorruptError(
            f"{uri!r}: is no zip file, or a damaged one ({error}); fetch it again"
        ) from error
    except MemoryError as error:
        raise PlaceError(
            f"{uri!r}: out of memory; use a machine with more, or smaller files"
        ) from error
    except Exception as error:
        reason = str(error).strip().partition("\n")[0] or "no reason was given"
        raise PlaceError(
            f"{uri!r}: can't be reached, read or written ({type(error).__name__}: {reason}); "
            "check the address, the network and your rights there"
        ) from error
