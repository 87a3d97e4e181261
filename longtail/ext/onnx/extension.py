"""ONNX Runtime: encoders in 8-bit integers, for processors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from longtail.extensions import Extension

ONNX_INT8 = "onnx-int8"


def _load(folder: Path, num_threads: int | None) -> Any:
    from longtail.ext.onnx.transformer import load_onnx_transformer

    return load_onnx_transformer(folder, num_threads)


EXTENSION = Extension("onnx", precisions={ONNX_INT8: _load})
