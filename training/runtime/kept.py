"""What a run has fitted lies in files of its folder, so that a run that was killed fits it once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
from safetensors.numpy import save_file

from longtail.models.files.durable import write_lines_durably
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
