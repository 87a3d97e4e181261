"""Arrays of safetensors files that stay on disk."""

from __future__ import annotations

import json
import mmap
from collections.abc import Collection
from pathlib import Path

import numpy as np

from longtail.models.platform import REMOVES_OPEN_FILES

_TYPES = {"I8": np.int8, "F16": np.float16, "F32": np.float32, "I32": np.int32}
_LENGTH_BYTES = 8


def mapped_arrays(path: Path, names: Collection[str]) -> dict[str, np.ndarray]:
    """Return arrays of a safetensors file that was found whole, as it is on disk.

    Their pages are read when they are used, and are one copy for all processes. A file that is in
    use can't be removed on Windows, so there the arrays are copies.

    Args:
        path: The file's path.
        names: The arrays' names; they are float16, float32, int8 or int32.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        described = json.loads(file.read(length))
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    arrays = {}
    for name in names:
        begin, end = described[name]["data_offsets"]
        dtype = np.dtype(_TYPES[described[name]["dtype"]])
        start, size = _LENGTH_BYTES + length + begin, (end - begin) // dtype.itemsize
        array = np.frombuffer(content, dtype, size, start)
        arrays[name] = array.reshape(described[name]["shape"])
        if not REMOVES_OPEN_FILES or start % dtype.itemsize:
            arrays[name] = arrays[name].copy()
    return arrays


def forget_pages(array: np.ndarray) -> None:
    """Let the pages of a mapped array go from this process; they come back when they are used."""
    base = array.base
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)
