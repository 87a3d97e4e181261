"""Encoders computed by ONNX Runtime in 8-bit integers, for processors.

Nothing of ONNX lies in a bundle: the graph is made of the bundle's verified weights when it is
loaded, in a process of its own (`longtail.ext.onnx.export`), since PyTorch's exporter
changes global state that a serving process relies on. The packages are an extra (`longtail[onnx]`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from longtail.ext.onnx.extension import ONNX_INT8
from longtail.models.errors import ConfigError
from longtail.models.extras import require

_EXPORT_TIMEOUT_S = 1200


class OnnxTransformer(nn.Module):
    """Stands in for the transformer of a `DualEncoder`; only for inference."""

    precision = ONNX_INT8

    def __init__(self, session: Any) -> None:
        super().__init__()
        self._session = session

    def forward(
        self, input_ids: Int[Tensor, "batch token"], attention_mask: Int[Tensor, "batch token"]
    ) -> BaseModelOutput:
        """Return the last layer, as the transformer itself does."""
        given = {"input_ids": input_ids.numpy(), "attention_mask": attention_mask.numpy()}
        (hidden,) = self._session.run(None, given)
        return BaseModelOutput(last_hidden_state=torch.from_numpy(hidden))


def load_onnx_transformer(folder: Path, num_threads: int | None = None) -> OnnxTransformer:
    """Return the encoder of a folder, computed by ONNX Runtime; takes some tens of seconds.

    Args:
        folder: Of a verified bundle's encoder.
        num_threads: Of ONNX Runtime; None: as many as PyTorch has.
    """
    require("onnx", f"precision {ONNX_INT8!r}")
    with tempfile.TemporaryDirectory(prefix="longtail-onnx-") as scratch:
        target = Path(scratch) / "encoder.onnx"
        _export(folder, target)
        return OnnxTransformer(_open(target, num_threads))


def _export(folder: Path, target: Path) -> None:
    # Let another process write the graph.
    package_folder = str(Path(__file__).parents[3])
    paths = [package_folder, *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        done = subprocess.run(  # noqa: S603  # our own module
            [sys.executable, "-m", "longtail.ext.onnx.export", str(folder), str(target)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            timeout=_EXPORT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"precision {ONNX_INT8!r}: no graph within {_EXPORT_TIMEOUT_S} s; take another one"
        ) from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise ConfigError(
            f"precision {ONNX_INT8!r}: the encoder can't be turned into an ONNX graph "
            f"({lines[-1][:300]}); take another precision"
        )


def _open(path: Path, num_threads: int | None) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads or torch.get_num_threads()
    options.enable_mem_pattern = False  # it keeps a plan for every shape, and all shapes come
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
