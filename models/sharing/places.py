"""Places of a bundle: a repository of the Hugging Face Hub, a folder behind a URI, a zip file.

Each holds the files of the bundle and a model card. fsspec reads them, by names that the manifest
has; nothing else there is touched.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias
from urllib.parse import quote
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from longtail.models.bundle.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES
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
_METHODS = (ZIP_STORED, ZIP_DEFLATED)
"""Others are unpacked by the whole input at a time: 3 KB of bzip2 can be gigabytes."""
_CHUNK_BYTES = 2**22
_WRITTEN: Any = {"compression": ZIP_DEFLATED, "compresslevel": 1, "strict_timestamps": False}

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
            self._files, path = url_to_fs(uri)
        except Exception as error:
            raise ConfigError(
                f"{uri!r}: {error}; expected a path, 'hf://owner/name', or a URI of fsspec"
            ) from error
        self._path = path.rstrip("/")

    @contextmanager
    def reading(self) -> Iterator[ReadFile]:
        """Yield what reads files there; whatever fails meanwhile, the place is the reason."""
        with self.reaching():
            self._files.invalidate_cache()
            if self._path.endswith(".zip"):
                with self._open() as file, ZipFile(file) as archive:
                    found = [x for x in archive.namelist() if x.rpartition("/")[2] == MANIFEST_NAME]
                    root = found[0].removesuffix(MANIFEST_NAME) if len(found) == 1 else ""
                    yield partial(self._read, partial(self._member, archive, root))
            else:
                yield partial(self._read, self._open)

    def content(self, name: str) -> bytes:
        """Return the content of a file as small as a manifest."""
        with self.reading() as read:
            return b"".join(read(name, MAX_MANIFEST_BYTES))

    def write(self, files: Mapping[str, Path], card: str) -> None:
        """Store files, by name in the bundle, and a card; a folder gets its manifest last."""
        names = sorted(files, key=lambda name: name == MANIFEST_NAME)
        there, path = self._files, self._path
        with self.reaching():
            if self._hub is not None:  # in one commit
                from huggingface_hub import CommitOperationAdd, HfApi

                added = [CommitOperationAdd(_CARD_NAME, card.encode())]
                added += [CommitOperationAdd(name, str(files[name])) for name in names]
                hub, (repository, revision) = HfApi(library_name="longtail"), self._hub.groups()
                message = "A Longtail bundle"
                hub.create_repo(repository, private=True, exist_ok=True)
                hub.create_commit(repository, added, commit_message=message, revision=revision)
            elif path.endswith(".zip"):
                there.makedirs(there._parent(path), exist_ok=True)
                with there.open(path, "wb") as file, ZipFile(file, "w", **_WRITTEN) as archive:
                    archive.writestr(_CARD_NAME, card)
                    for name in names:
                        archive.write(files[name], name)
            else:
                with suppress(FileNotFoundError):
                    there.rm_file(f"{path}/{MANIFEST_NAME}")
                for name in names:
                    there.makedirs(there._parent(f"{path}/{name}"), exist_ok=True)
                    there.put_file(str(files[name]), f"{path}/{name}")
                there.pipe_file(f"{path}/{_CARD_NAME}", card.encode())

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Say of any failure that the place is the reason: every file system raises its own."""
        try:
            yield
        except LongtailError:
            raise
        except Exception as error:
            is_corrupt = isinstance(error, BadZipFile | zlib.error)
            reason = str(error).strip().partition("\n")[0] or "no reason was given"
            raise (BundleCorruptError if is_corrupt else BundleError)(
                f"{self.uri!r}: can't be reached, read, written or copied ({type(error).__name__}: "
                f"{reason}); check the address, the network and your rights, or make room"
            ) from error

    def _open(self, name: str = "") -> Any:
        """Open a file of the folder, or the zip file itself."""
        path = f"{self._path}/{name}" if name else self._path
        with suppress(FileNotFoundError, NotADirectoryError):
            if self._files.info(path)["type"] == "file":  # a pipe would wait for its writer
                return self._files.open(path, "rb")
        raise self._lacks(name or path)

    def _member(self, archive: ZipFile, root: str, name: str) -> Any:
        if root + name not in archive.NameToInfo:
            raise self._lacks(root + name)
        if (method := archive.getinfo(root + name).compress_type) not in _METHODS:
            raise BundleCorruptError(
                f"{self.uri!r}: file {name!r}, of compression {method}: expected stored or "
                "deflated (0 or 8); pack it again"
            )
        return archive.open(root + name)

    def _lacks(self, name: str) -> BundleNotFoundError:
        return BundleNotFoundError(f"{self.uri!r}: no {name} there; check the address")

    def _read(
        self, open_file: Callable[[str], IO[bytes]], name: str, max_bytes: int
    ) -> Iterator[bytes]:
        left = max_bytes + 1
        with open_file(name) as file:
            while chunk := file.read(min(left, _CHUNK_BYTES)):
                left -= len(chunk)
                if not left:
                    raise BundleCorruptError(
                        f"{self.uri!r}: file {name!r} has over {max_bytes} bytes; fetch it again"
                    )
                yield chunk
