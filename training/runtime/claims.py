"""A note in a folder of what is made there, so that no other run or experiment is mixed with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longtail.models.errors import ConfigError
from longtail.models.files.durable import read_json, write_json_durably


def claim(path: Path, content: Mapping[str, Any], what: str, option: str) -> None:
    """Write what a folder is for, or refuse one that holds something else.

    Args:
        path: The note, in the folder.
        content: What decides the work.
        what: The kind of work, as messages name it: "run".
        option: That chose the folder.

    Raises:
        ConfigError: The note is there, and says something else.
    """
    expected = json.loads(json.dumps(content))  # tuples are lists there
    found = read_json(path) if path.exists() else expected
    if found != expected:
        differing = sorted(
            key for key in expected.keys() | found.keys() if found.get(key) != expected.get(key)
        )
        raise ConfigError(
            f"folder {str(path.parent)!r} holds another {what} (its {', '.join(differing)} "
            f"differs); choose another with {option}, or delete it"
        )
    write_json_durably(path, expected)
