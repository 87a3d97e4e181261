"""Places of a bundle: a repository of the Hugging Face Hub, a folder behind a URI, a zip file.

Each holds the files of the bundle and a model card. fsspec reads them, by names that the manifest
has; nothing else there is touched.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from longtail.models.bundle.manifest import MANIFEST_NAME
from longtail.models.errors import (
    BundleCorruptError,
    BundleError,
    BundleNotFoundError,
    ConfigError,
    LongtailError,
)
from longtail.models.extras import require

_CARD_NAME = "README.md"  # where Hugging Face looks for it
_HUB = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Others are unpacked by the whole input at a time: 3 KB of bzip2 can be gigabytes."""
_MAX_FOLDERS = 32
"""Most folders around a file in a zip file: fsspec keeps the whole name of each."""
_CHUNK_BYTES = 2**22

ReadFile: TypeAlias = Callable[[str, int], Iterator[bytes]]
"""Yields the content of a file by its name, in parts; refuses one of more bytes than given."""


class Place:
    """Where a bundle or a registry is, or will be.

    Attributes:
        uri: "hf://owner/name" or "hf://owner/name@revision"; the path of a zip file or of a
            folder, or any URI of fsspec for either ("s3://...", "file:///...").
    """

    def __init__(self, uri: str) -> None:
        """Name it; nothing is read yet."""
        from fsspec.core import url_to_fs

        self.uri, self._hub = uri, _HUB.fullmatch(uri)
        if uri.startswith("hf://"):
            require("sharing", repr(uri))
        if self._hub is not None and self._hub[2]:
            uri = f"hf://{self._hub[1]}@{quote(self._hub[2], safe='')}"
        try:
            if uri.startswith("hf://") and self._hub is None:
                raise ValueError("no repository of the Hub")
            self._files, path = url_to_fs(uri)
        except Exception as error:
            raise ConfigError(
                f"{uri!r}: {error}; expected a path, 'hf://owner/name', or a URI of fsspec"
            ) from error
        self._path = path.rstrip("/")

    @contextmanager
    def reading(self, folder: str = "") -> Iterator[ReadFile]:
        """Yield what reads the files of a folder there, such as "2/" of a registry."""
        with ExitStack() as stack:
            with self._reaching():
                self._files.invalidate_cache()
                files, root = stack.enter_context(self._opened("r"))
            yield partial(self._read, files, root + folder)

    def write(self, files: Mapping[str, Path], card: str) -> None:
        """Store files, by name in the bundle, and a card; a folder gets its manifest last."""
        names = sorted(files, key=lambda name: name == MANIFEST_NAME)
        with self._reaching():
            if self._hub is not None:  # in one commit
                from huggingface_hub import CommitOperationAdd, HfApi

                added = [CommitOperationAdd(_CARD_NAME, card.encode())]
                added += [CommitOperationAdd(name, str(files[name])) for name in names]
                hub, (repository, revision) = HfApi(library_name="longtail"), self._hub.groups()
                message = "A Longtail bundle"
                hub.create_repo(repository, private=True, exist_ok=True)
                hub.create_commit(repository, added, commit_message=message, revision=revision)
                return
            with self._opened("w") as (there, root):
                if there.exists(root + MANIFEST_NAME):
                    there.rm_file(root + MANIFEST_NAME)
                there.makedirs(root.rstrip("/"), exist_ok=True)
                there.pipe_file(root + _CARD_NAME, card.encode())
                for name in names:
                    there.makedirs((root + name).rpartition("/")[0], exist_ok=True)
                    there.put_file(str(files[name]), root + name)

    @contextmanager
    def _opened(self, mode: str) -> Iterator[tuple[Any, str]]:
        """Yield the file system that has the files, and what their names begin with there."""
        if not self._path.endswith(".zip"):
            yield self._files, f"{self._path}/"
            return
        from fsspec.implementations.zip import ZipFileSystem

        if mode == "w":
            self._files.makedirs(self._files._parent(self._path), exist_ok=True)
        options = {"compression": zipfile.ZIP_DEFLATED, "compresslevel": 1}
        with (
            self._open(self._files, self._path, f"{mode}b") as file,
            closing(ZipFileSystem(file, mode, **options)) as archive,
        ):
            for x in archive.zip.infolist():
                if x.compress_type not in _METHODS or x.filename.count("/") > _MAX_FOLDERS:
                    raise BundleCorruptError(
                        f"{self.uri!r}: file {x.filename[:99]!r}, of compression "
                        f"{x.compress_type}: expected stored or deflated (0 or 8), in at most "
                        f"{_MAX_FOLDERS} folders; pack it again"
                    )
            names = archive.zip.namelist()
            found = [x for x in names if x.rpartition("/")[2] == MANIFEST_NAME]
            yield archive, found[0].removesuffix(MANIFEST_NAME) if len(found) == 1 else ""

    def _open(self, files: Any, path: str, mode: str) -> Any:
        try:
            # Opening a pipe would wait for its writer.
            if mode == "wb" or files.info(path)["type"] == "file":
                return files.open(path, mode)
        except (FileNotFoundError, NotADirectoryError):
            pass
        raise BundleNotFoundError(
            f"{self.uri!r}: no {path.removeprefix(f'{self._path}/')} there; check the address"
        )

    def _read(self, files: Any, folder: str, name: str, max_bytes: int) -> Iterator[bytes]:
        left = max_bytes + 1
        with self._reaching(), self._open(files, folder + name, "rb") as file:
            while chunk := file.read(min(left, _CHUNK_BYTES)):
                left -= len(chunk)
                if not left:
                    raise BundleCorruptError(
                        f"{self.uri!r}: file {name!r} has over {max_bytes} bytes; fetch it again"
                    )
                yield chunk

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Say of any failure that the place is the reason: every file system raises its own."""
        try:
            yield
        except LongtailError:
            raise
        except Exception as error:
            is_corrupt = isinstance(error, zipfile.BadZipFile | zlib.error)
            reason = str(error).strip().partition("\n")[0] or "no reason was given"
            raise (BundleCorruptError if is_corrupt else BundleError)(
                f"{self.uri!r}: can't be reached, read or written ({type(error).__name__}: "
                f"{reason}); check the address, the network and your rights there"
            ) from error
