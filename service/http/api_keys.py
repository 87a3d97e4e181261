"""Bearer keys: made, kept as hashes, and read again when their file changes.

A key is 256 random bits, so that its plain sha256 can be kept and nobody can guess from it.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from longtail.models.errors import ConfigError
from longtail.service.process.reloading_file import ReloadingFile

logger = logging.getLogger(__name__)

KEY_PREFIX = "lt_"
_ENTRY = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,64}):(?P<digest>[0-9a-f]{64})")


def make_key(name: str) -> tuple[str, str]:
    """Return a new key, and the entry that lets it in."""
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    entry = f"{name}:{digest_of(key)}"
    if not _ENTRY.fullmatch(entry):
        raise ConfigError(
            f"key name {name!r}: expected 1 to 64 letters, digits, dots, hyphens or underscores"
        )
    return key, entry


def digest_of(key: str) -> str:
    """Return the hex sha256 of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


class KeyRing:
    """The keys of one purpose: those of a setting, and those of a file that may change."""

    def __init__(self, purpose: str, entries: str = "", path: Path | None = None) -> None:
        """Read all entries.

        Args:
            purpose: As in the names of the settings: "admin" or "api".
            entries: NAME:SHA256 of each key, with commas or on lines of their own.
            path: A file of such lines; it is read again whenever it has changed.
        """
        self._fixed = _parse(entries, f"LONGTAIL_{purpose.upper()}_KEYS")
        self._file = None if path is None else ReloadingFile(path, _read)
        self.is_configured = self._file is not None or bool(self._fixed)
        """Whether keys are required at all, even if there are none at the moment."""

    def name_of(self, key: str) -> str | None:
        """Return the name of a key; None where it is not one of ours.

        Takes as long for a wrong key as for a right one.
        """
        digest = digest_of(key)
        matching = None
        for name, other in (*self._fixed.items(), *self._keys_of_file().items()):
            if hmac.compare_digest(digest, other):
                matching = name
        return matching

    def _keys_of_file(self) -> Mapping[str, str]:
        if self._file is None:
            return {}
        try:
            if self._file.refresh():
                logger.info("read %d keys from %s", len(self._file.content), self._file.path)
        except ConfigError as error:
            logger.error("the keys stay as they were: %s", error)
        return self._file.content


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of administrators and of clients; without client keys everybody may ask."""

    admin: KeyRing
    api: KeyRing


def _read(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"key file {str(path)!r} can't be read ({type(error).__name__})"
        ) from error
    return _parse(text, f"key file {str(path)!r}")


def _parse(text: str, where: str) -> dict[str, str]:
    entries: dict[str, str] = {}
    for number, entry in enumerate(_entries(text), 1):
        found = _ENTRY.fullmatch(entry)
        if found is None:
            raise ConfigError(
                f"{where}: entry {number} is not NAME:SHA256, the name in letters, digits, '.', "
                "'_' and '-', the hash in 64 hex digits; make one with 'longtail key NAME'"
            )
        if found["name"] in entries:
            raise ConfigError(
                f"{where}: two entries have the name {found['name']!r}; give each its own"
            )
        entries[found["name"]] = found["digest"]
    return entries


def _entries(text: str) -> Sequence[str]:
    lines = (line.partition("#")[0] for line in text.splitlines())
    parts = (part.strip() for line in lines for part in line.split(","))
    return [part for part in parts if part]
