"""Where versions come from that were published elsewhere: a registry behind any fsspec URI.

The folder of the service's own registry is a copy of it, version by version as they are asked for.
"""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import asdict

from longtail.models.bundle.registry import STATE_NAME, Registry, RegistryState
from longtail.models.errors import BundleError
from longtail.models.files.durable import make_read_only, write_json_durably
from longtail.models.platform import sync_folder
from longtail.models.sharing.places import Place
from longtail.models.sharing.transfer import fetch, read_manifest, read_state

logger = logging.getLogger(__name__)


class RegistrySource:
    """Copies versions and the alias `current` from a registry elsewhere."""

    def __init__(self, uri: str, registry: Registry) -> None:
        """Name both.

        Args:
            uri: Of a registry's folder, such as "s3://bucket/registry" or "file:///mnt/registry".
            registry: Where the copies go; nobody else publishes there.

        Raises:
            ConfigError: fsspec knows no such kind of URI, or lacks the package for it.
            PlaceError: fsspec can't reach it.
        """
        self._where = f"registry source {uri!r}"
        self._place = Place(uri)
        self._registry = registry
        self._seen: RegistryState | None = None

    def refresh(self) -> None:
        """Take over the alias and its history, if they have changed.

        Raises:
            BundleError: They can't be read or stored.
        """
        with self._place.reading() as open_file:
            state = read_state(open_file, self._where)
        if state == self._seen:
            return
        try:
            self._registry.folder.mkdir(parents=True, exist_ok=True)
            write_json_durably(self._registry.folder / STATE_NAME, asdict(state))
        except OSError as error:
            raise BundleError(
                f"registry {str(self._registry.folder)!r}: {STATE_NAME} can't be stored ({error}); "
                "make room"
            ) from error
        self._seen = state

    def fetch(self, number: int) -> None:
        """Copy a version, unless it is here; it appears whole or not at all.

        Raises:
            BundleNotFoundError: The source has no such version.
            BundleVersionError: It was written in another format.
            BundleCorruptError: It is not as it was written.
            BundleError: It can't be read, or there is no room for it here.
        """
        folder = self._registry.folder / str(number)
        if folder.is_dir():
            return
        where = f"{self._where}: version {number}"
        incoming = folder.with_name(f".fetching-{number}-{os.getpid()}")
        shutil.rmtree(incoming, ignore_errors=True)
        try:
            with self._place.reading() as open_any:
                manifest, text = read_manifest(lambda name: open_any(f"{number}/{name}"), where)
                fetch(lambda name: open_any(f"{number}/{name}"), manifest, text, incoming, where)
            make_read_only(incoming)
            incoming.rename(folder)
            sync_folder(folder.parent)
        except OSError as error:
            raise BundleError(f"{where}: a copy can't be stored ({error}); make room") from error
        finally:
            shutil.rmtree(incoming, ignore_errors=True)
        logger.info("fetched version=%d from %s", number, self._where)
