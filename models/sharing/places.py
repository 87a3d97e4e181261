"""Places of a bundle: a repository of the Hugging Face Hub, a folder behind a URI, a zip file.

Each holds the files of the bundle and a model card. fsspec reads them, by names that the manifest
has; nothing else there is touched.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from longtail.models.bundle.manifest import MANIFEST_NAME
from longtail.models.errors import BundleCorruptError, BundleError, ConfigError, LongtailError
from longtail.models.extras import require

CARD_NAME: Final = "README.md"
"""The model card, where Hugging Face looks for it."""
_HUB = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Others are unpacked by the whole input at a time: 3 KB of bzip2 can be gigabytes."""

OpenFile: TypeAlias = Callable[[str], Any]
"""Opens a file by its name in the bundle; raises KeyError where there is none."""


class PlaceError(BundleError):
    """A place can't be reached, or refuses the request."""


class Place:
    """Where a bundle is, or will be."""

    def __init__(self, uri: str) -> None:
        """Name it; nothing is read yet.

        Args:
            uri: "hf://owner/name" or "hf://owner/name@revision"; the path of a zip file or of a
                folder, or any URI of fsspec for either ("s3://...", "file:///...").
        """
        from fsspec.core import url_to_fs

        self._uri, self._hub = uri, _HUB.fullmatch(uri)
        if uri.startswith("hf://"):
            require("sharing", repr(uri))
            if self._hub is None:
                raise ConfigError(f"{uri!r}: expected 'hf://owner/name' or 'hf://owner/name@...'")
            revision = self._hub[2]
            uri = f"hf://{self._hub[1]}" + (f"@{quote(revision, safe='')}" if revision else "")
        with reaching(uri):
            try:
                self._files, path = url_to_fs(uri)
            except (ValueError, ImportError) as error:
                raise ConfigError(
                    f"{uri!r}: {error}; expected a path, 'hf://owner/name', or a URI of fsspec"
                ) from error
        self._path, self._is_zip = path.rstrip("/"), path.endswith(".zip")

    @contextmanager
    def reading(self) -> Iterator[OpenFile]:
        """Yield what opens a file; the files of an archive may all be in one folder of it."""
        with ExitStack() as stack:
            with reaching(self._uri):
                self._files.invalidate_cache()
                open_file = self._opener_of_zip(stack) if self._is_zip else self._open_file
            yield open_file

    def write(self, files: Mapping[str, Path], card: str) -> None:
        """Store files and card; a folder has no manifest until all other files are there.

        Args:
            files: By name in the bundle, the manifest among them.
            card: In Markdown.
        """
        manifest = f"{self._path}/{MANIFEST_NAME}"
        with reaching(self._uri):
            if self._hub is not None:
                _commit(self._hub[1], self._hub[2], files, card)
                return
            if self._is_zip:
                self._files.makedirs(self._files._parent(self._path), exist_ok=True)
                options: Any = {"compression": zipfile.ZIP_DEFLATED, "compresslevel": 1}
                with (
                    self._files.open(self._path, "wb") as file,
                    zipfile.ZipFile(file, "w", **options, strict_timestamps=False) as archive,
                ):
                    archive.writestr(CARD_NAME, card)
                    for name, path in files.items():
                        archive.write(path, name)
                return
            if self._files.exists(manifest):
                self._files.rm_file(manifest)
            self._files.makedirs(self._path, exist_ok=True)
            self._files.pipe_file(f"{self._path}/{CARD_NAME}", card.encode())
            for name in sorted(files, key=lambda name: name == MANIFEST_NAME):
                target = f"{self._path}/{name}"
                self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
                self._files.put_file(str(files[name]), target)

    def _opener_of_zip(self, stack: ExitStack) -> OpenFile:
        if not self._files.isfile(self._path):
            return dict[str, Any]().__getitem__  # nothing is there
        file = stack.enter_context(self._files.open(self._path, "rb"))
        archive = stack.enter_context(zipfile.ZipFile(file))
        for entry in archive.infolist():
            if entry.compress_type not in _METHODS:
                raise BundleCorruptError(
                    f"{self._uri!r}: file {entry.filename!r} is compressed by method "
                    f"{entry.compress_type}, expected stored or deflated (0 or 8); pack it again"
                )
        names = [x for x in archive.namelist() if x.rpartition("/")[2] == MANIFEST_NAME]
        folder = names[0].removesuffix(MANIFEST_NAME) if len(names) == 1 else ""
        return lambda name: archive.open(folder + name)

    def _open_file(self, name: str) -> Any:
        from fsspec.implementations.local import LocalFileSystem

        path = f"{self._path}/{name}"
        with reaching(self._uri):
            if isinstance(self._files, LocalFileSystem) and not Path(path).is_file():
                raise KeyError(name)  # a pipe would be waited for
            try:
                return self._files.open(path, "rb")
            except (FileNotFoundError, IsADirectoryError) as error:
                raise KeyError(name) from error


def _commit(repository: str, revision: str | None, files: Mapping[str, Path], card: str) -> None:
    """Store files and card in one commit; a repository that is not there is made, private."""
    from huggingface_hub import CommitOperationAdd, HfApi

    operations = [CommitOperationAdd(CARD_NAME, card.encode())]
    operations += [CommitOperationAdd(name, str(path)) for name, path in sorted(files.items())]
    hub = HfApi(library_name="longtail")
    hub.create_repo(repository, private=True, exist_ok=True)
    message = "A Longtail bundle"
    hub.create_commit(repository, operations, commit_message=message, revision=revision)


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
    except Exception as error:
        reason = str(error).strip().partition("\n")[0] or "no reason was given"
        raise PlaceError(
            f"{uri!r}: can't be reached, read or written ({type(error).__name__}: {reason}); "
            "check the address, the network and your rights there"
        ) from error
