"""Where versions come from that were published elsewhere: a registry behind any fsspec URI.

The folder of the service's own registry is a copy of it, version by version as they are asked for.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from longtail.models.bundle.manifest import MANIFEST_NAME, Manifest
from longtail.models.bundle.registry import STATE_NAME, Registry, state_from_json
from longtail.models.errors import BundleError, BundleNotFoundError, ConfigError
from longtail.models.files.durable import sync_folder, sync_tree, write_json_durably
from longtail.models.sharing.transfer import check_names

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 2**22


class SourceError(BundleError):
    """The registry elsewhere can't be read, or what it has can't be stored here."""


class RegistrySource:
    """Copies versions and the alias `current` from a registry elsewhere."""

    def __init__(self, uri: str, registry: Registry) -> None:
        """Name both.

        Args:
            uri: Of a registry's folder, such as "s3://bucket/registry" or "file:///mnt/registry".
            registry: Where the copies go; nobody else publishes there.

        Raises:
            ConfigError: fsspec knows no such kind of URI, or lacks the package for it.
        """
        from fsspec.core import url_to_fs

        self._uri = uri
        self._registry = registry
        self._seen: bytes | None = None
        try:
            self._files, self._root = url_to_fs(uri)
        except (ValueError, ImportError) as error:
            raise ConfigError(f"registry source {uri!r}: {error}") from error

    def refresh(self) -> None:
        """Take over the alias and its history, if they have changed.

        Raises:
            SourceError: They can't be read.
        """
        with self._reaching(STATE_NAME):
            self._files.invalidate_cache()
            content: bytes = self._files.cat_file(f"{self._root}/{STATE_NAME}")
        if content == self._seen:
            return
        try:
            state = state_from_json(content)
        except ValueError as error:
            raise SourceError(
                f"registry source {self._uri!r}: {STATE_NAME} can't be read ({error}); mend it "
                "there, or publish a version to it; until then the service keeps what it has"
            ) from error
        with self._storing():
            self._registry.folder.mkdir(parents=True, exist_ok=True)
            write_json_durably(self._registry.folder / STATE_NAME, asdict(state))
        self._seen = content

    def fetch(self, number: int) -> None:
        """Copy a version, unless it is here; it appears whole or not at all.

        Raises:
            BundleNotFoundError: The source has no such version.
            BundleVersionError: It was written in another format.
            BundleCorruptError: Its manifest is not as it was written.
            SourceError: It can't be read, or there is no room for it here.
        """
        folder = self._registry.folder / str(number)
        if folder.is_dir():
            return
        manifest, text = self._manifest(number)
        incoming = folder.with_name(f".fetching-{number}-{os.getpid()}")
        shutil.rmtree(incoming, ignore_errors=True)
        try:
            self._check_room(number, manifest)
            self._copy(number, manifest, text, incoming)
            with self._storing():
                sync_tree(incoming)
                incoming.rename(folder)
                sync_folder(folder.parent)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)
        logger.info("fetched version=%d from %s", number, self._uri)

    def _manifest(self, number: int) -> tuple[Manifest, bytes]:
        path = f"{self._root}/{number}/{MANIFEST_NAME}"
        where = f"registry source {self._uri!r}: version {number}"
        with self._reaching(f"{number}/{MANIFEST_NAME}"):
            if not self._files.exists(path):
                raise BundleNotFoundError(f"{where} is not there; ask for one that is")
            text: bytes = self._files.cat_file(path)
        manifest = Manifest.from_json(text.decode("utf-8", "replace"), where)
        check_names(manifest.files, where)
        return manifest, text

    def _check_room(self, number: int, manifest: Manifest) -> None:
        needed = sum(info.size_bytes for info in manifest.files.values())
        with self._storing():
            self._registry.folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self._registry.folder).free
            if needed > free:
                raise OSError(
                    errno.ENOSPC, f"version {number} has {needed} bytes, and {free} are free"
                )

    def _copy(self, number: int, manifest: Manifest, text: bytes, incoming: Path) -> None:
        for name in manifest.files:
            target = incoming / name
            with self._reaching(f"{number}/{name}"):
                source = self._files.open(f"{self._root}/{number}/{name}", "rb")
            with source, self._storing():
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as file:
                    for chunk in self._chunks(source, f"{number}/{name}"):
                        file.write(chunk)
        with self._storing():
            (incoming / MANIFEST_NAME).write_bytes(text)

    def _chunks(self, source: Any, name: str) -> Iterator[bytes]:
        while True:
            with self._reaching(name):
                chunk = source.read(_CHUNK_BYTES)
            if not chunk:
                return
            yield chunk

    @contextmanager
    def _reaching(self, name: str) -> Iterator[None]:
        """Say of any failure that the source is the reason: every file system raises its own.

        Raises:
            BundleError: The same again.
            SourceError: For anything else.
        """
        try:
            yield
        except BundleError:
            raise
        except Exception as error:
            raise SourceError(
                f"registry source {self._uri!r}: {name} can't be read "
                f"({type(error).__name__}: {error})"
            ) from error

    @contextmanager
    def _storing(self) -> Iterator[None]:
        """Say of a failure that this machine's disk is the reason.

        Raises:
            SourceError: It is.
        """
        try:
            yield
        except OSError as error:
            raise SourceError(
                f"registry {str(self._registry.folder)!r}: a copy can't be stored ({error}); make "
                "room, then ask for the version again"
            ) from error
