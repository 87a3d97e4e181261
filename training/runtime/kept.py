"""What a run has fitted, kept in files of its folder and fitted once; whose folder it is."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors.numpy import save_file

from longtail.models.errors import ConfigError
from longtail.models.files.durable import read_json, write_json_durably, write_lines_durably
from longtail.models.platform import move, sync_file

_Fitted = TypeVar("_Fitted")


def kept(
    path: Path,
    fit: Callable[[], _Fitted],
    read: Callable[[Path], _Fitted],
    write: Callable[[Path, _Fitted], object],
) -> _Fitted:
    """Return what a file holds, or fit it and keep it there; None is not kept.

    Args:
        path: The file; its folder need not exist.
        fit: Called where there is no file.
        read: Reads the file.
        write: Writes the file as a whole, or not at all.
    """
    if path.exists():
        return read(path)
    fitted = fit()
    if fitted is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, fitted)
    return fitted


def kept_text(
    path: Path,
    fit: Callable[[], _Fitted],
    of_text: Callable[[str], _Fitted],
    to_text: Callable[[_Fitted], str],
) -> _Fitted:
    """Return what a text file holds, or fit it and keep it there (see `kept`)."""
    return kept(
        path,
        fit,
        lambda path: of_text(path.read_text(encoding="utf-8")),
        lambda path, fitted: write_lines_durably(path, [to_text(fitted)]),
    )


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a safetensors file; a crash leaves all of it or nothing under this name."""
    incoming = path.with_suffix(f".incoming-{os.getpid()}")
    # safetensors writes an array's memory as it lies, whatever the order of its axes.
    save_file({name: np.ascontiguousarray(x) for name, x in arrays.items()}, incoming)
    sync_file(incoming)
    move(incoming, path)


logger = logging.getLogger(__name__)

RUN_NAME = "run.json"
"""Name of the note of a training run."""


def folder_of_run(work: Path, content: Mapping[str, Any]) -> Path:
    """Return the folder of a run: the folder of work, or one in it where that holds another run.

    The one in it is named by what decides the run, which resumes there. Nothing is written.
    """
    differing = _differing(work / RUN_NAME, content)
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
