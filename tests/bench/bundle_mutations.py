"""Bundles with one thing changed, and hashes that fit: what a stranger could publish."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from longtail.models.bundle.bundle import _tensor_infos, file_info
from longtail.models.bundle.manifest import MANIFEST_NAME, _canonical, digest_of

DEEP = "[" * 100_000 + "]" * 100_000
INTEGERS = (-(2**63), -1, 0, 1, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
NUMBERS = (np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-45, -1.0, 0.0, 6e4)
DTYPES = ("int64", "int32", "uint8", "float64", "float32", "float16", "bool")
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 7, 2**31, 10**12, 10**19, 10**400, 1e-300, 1e12, 1e308, float("nan"),
    float("inf"), "", "x", "\ud800", "a\0b", "\x1b[31m", "x" * 10_000, "DEEP", [], {}, [[]], [1],
    ["x"] * 3, {"x": 1}, "../../../etc/passwd",
)  # fmt: skip
_UNCHANGED = ("files", "tensors", "digest")


def mutate(base: Path, folder: Path, rng: np.random.Generator) -> str:
    """Make a bundle like another one but for one thing; return what."""
    content = json.loads((base / MANIFEST_NAME).read_text())
    name = str(rng.choice([*sorted(content["files"]), MANIFEST_NAME]))
    if name == MANIFEST_NAME:
        kept = {key: content.pop(key) for key in _UNCHANGED}
        what = _change_json(content, rng)
        content = content | kept if isinstance(content, dict) else kept
        data = None
    else:
        data, what = _changed((base / name).read_bytes(), name, rng)
    _write(base, folder, content, {} if data is None else {name: data})
    return f"{name}: {what}"


def _write(base: Path, folder: Path, content: dict[str, Any], files: dict[str, bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name in content["files"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if name not in files:
            os.link(base / name, folder / name)
    for name, data in files.items():
        (folder / name).write_bytes(data)
        info = file_info(folder / name)
        content["files"][name] = {"sha256": info.sha256, "size_bytes": info.size_bytes}
        if name in content["tensors"]:
            try:
                infos = _tensor_infos(folder / name).items()
            except Exception:  # noqa: BLE001, S112  # no safetensors any more
                continue
            content["tensors"][name] = {
                key: {"shape": info.shape, "dtype": info.dtype} for key, info in infos
            }
    try:
        content["digest"] = digest_of(content)
        text = _canonical(content)
    except RecursionError:
        text = "{}"
    (folder / MANIFEST_NAME).write_bytes(text.encode("utf-8", "surrogatepass"))


def _changed(data: bytes, name: str, rng: np.random.Generator) -> tuple[bytes, str]:
    """Return the changed content of a file, and what was changed."""
    if rng.random() < 0.05 or not data:
        return _changed_bytes(data, rng)
    if name.endswith(".safetensors"):
        arrays = {key: array.copy() for key, array in load(data).items()}
        what = _change_arrays(arrays, rng)
        return save({key: np.asarray(x, order="C") for key, x in arrays.items()}), what
    if not name.endswith(".jsonl"):
        content, what = _changed_json(json.loads(data), rng)
        return _dumped(content), what
    lines = data.decode().splitlines()
    at = int(rng.integers(len(lines)))
    if rng.random() < 0.1:
        lines.insert(at, lines[int(rng.integers(len(lines)))])
        what = "doubled"
    else:
        content, what = _changed_json(json.loads(lines[at]), rng)
        lines[at] = _dumped(content).decode()
    return ("\n".join(lines) + "\n").encode(), f"line {at}, {what}"


def _changed_bytes(data: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    at, kind = int(rng.integers(len(data) + 1)), rng.integers(4)
    if kind == 0:
        return data[:at], f"cut at {at}"
    if kind == 1:
        return data[:at] + rng.bytes(4) + data[at + 4 :], f"bytes at {at}"
    if kind == 2:
        return data + data, "twice"
    return b"\xff\xfe\0" + data, "no UTF-8"


def _change_arrays(arrays: dict[str, np.ndarray], rng: np.random.Generator) -> str:
    """Change one array, or which ones there are."""
    name = str(rng.choice(sorted(arrays)))
    if rng.random() < 0.05:
        if rng.random() < 0.5:
            del arrays[name]
        else:
            arrays["extra"] = arrays[name]
        return f"{name} missing, or another one"
    if rng.random() < 0.03 and "indptr" in arrays:  # what SciPy's own check lets pass
        arrays["indptr"][1:-1] = rng.integers(1, 5000)
        arrays["indptr"][-1] = rng.choice([0, -1])
        arrays["indices"][:] = rng.choice([0, 2**30])
        return "pointers that end in 0"
    change = _changed_shape if rng.random() < 0.4 else _changed_values
    arrays[name], what = change(arrays[name], rng)
    return f"{name} {what}"


def _changed_shape(array: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, str]:
    dtype = str(rng.choice(DTYPES))
    with np.errstate(all="ignore"):
        changes = {
            "shorter": array[:-1],
            "longer": np.concatenate([array, array[-1:]]),
            "much longer": np.concatenate([array] * 50),
            "empty": array[:0],
            "2d": array.reshape(1, *array.shape),
            "flat": array.reshape(-1),
            "column": array.reshape(-1, 1),
            "no columns": np.zeros((len(array) * 1000, 0), array.dtype),
            "transposed": array.T,
            f"as {dtype}": array.astype(dtype),
        }
    what = str(rng.choice(sorted(changes)))
    return changes[what].copy(), what


def _changed_values(array: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, str]:
    flat = array.copy().reshape(-1)
    if not len(flat):
        return array, "nothing"
    kind = rng.integers(5)
    pool = NUMBERS if flat.dtype.kind == "f" else (*INTEGERS, len(flat), int(flat[-1]) + 1)
    value = pool[int(rng.integers(len(pool)))]
    with np.errstate(all="ignore"):
        new = np.array([value]).astype(flat.dtype)[0]
    start = int(rng.integers(len(flat)))
    stop = start + 1 if kind < 2 else int(rng.integers(start, len(flat) + 1))
    if kind == 3:
        flat[:] = new
        return flat.reshape(array.shape), f"all {value}"
    if kind == 4:
        flat[start:stop] = rng.permutation(flat[start:stop])
        return flat.reshape(array.shape), f"[{start}:{stop}] in another order"
    flat[start:stop] = new
    return flat.reshape(array.shape), f"[{start}:{stop}] = {value}"


def _changed_json(content: Any, rng: np.random.Generator) -> tuple[Any, str]:
    if rng.random() < 0.03 or not isinstance(content, dict | list) or not content:
        value = VALUES[int(rng.integers(len(VALUES)))]
        return value, f"all {value!r:.40}"
    return content, _change_json(content, rng)


def _change_json(content: Any, rng: np.random.Generator) -> str:
    """Change one value at any depth, in place."""
    path = []
    while True:
        keys = list(content) if isinstance(content, dict) else list(range(len(content)))
        key = keys[int(rng.integers(len(keys)))]
        path.append(str(key))
        below = content[key]
        if not isinstance(below, dict | list) or not below or rng.random() < 0.2:
            break
        content = below
    kind = rng.random()
    if kind < 0.1:
        del content[key]
        return f"{'/'.join(path)} removed"
    if kind < 0.2 and isinstance(content, list):
        content[:] = content * int(rng.choice([2, 100]))
        return f"{'/'.join(path)} many times"
    if kind < 0.25 and isinstance(content, dict):
        content[str(rng.choice(["extra", "auto_map", "attn_implementation"]))] = "evil.Evil"
        return f"{'/'.join(path)} has more beside it"
    if kind < 0.45 and isinstance(below, int | float):
        content[key] = below * int(rng.choice([-1, 2, 1000, 10**9]))
        return f"{'/'.join(path)} = {content[key]}"
    value = VALUES[int(rng.integers(len(VALUES)))]
    content[key] = value
    return f"{'/'.join(path)} = {value!r:.40}"


def _dumped(content: Any) -> bytes:
    return json.dumps(content).replace('"DEEP"', DEEP).encode()
