"""A note in a folder of what is made there, so that no other run or experiment is mixed with it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from longtail.models.errors import ConfigError
from longtail.models.files.durable import read_json, write_json_durably

logger = logging.getLogger(__name__)

RUN_NAME = "run.json"
"""Name of the note of a training run."""


def folder_of_run(work: Path, name: str, content: Mapping[str, Any]) -> Path:
    """Return the folder of a run: the folder of work, or one in it where that holds another run.

    The one in it is named by what decides the run, which resumes there. Nothing is written.

    Args:
        work: Folder of the work.
        name: Of the note.
        content: What decides the run.
    """
    differing = _differing(work / name, content)
    if not differing:
        return work
    digest = sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    own = work / f"run-{digest[:16]}"
    logger.warning(
        "%s holds another run (its %s differs); this one works in %s; delete the folders of runs "
        "that you don't resume", work, ", ".join(differing), own,
    )  # fmt: skip
    return own


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
    if differing := _differing(path, content):
        raise ConfigError(
            f"folder {str(path.parent)!r} holds another {what} (its {', '.join(differing)} "
            f"differs); choose another with {option}, or delete it"
        )
    write_json_durably(path, content)


def _differing(path: Path, content: Mapping[str, Any]) -> list[str]:
    """Return the keys in which a note and other content differ; none where there is no note."""
    if not path.exists():
        return []
    expected = json.loads(json.dumps(content))  # tuples are lists there
    found = read_json(path)
    return sorted(
        key for key in expected.keys() | found.keys() if found.get(key) != expected.get(key)
    )
