"""Writes an encoder as an ONNX graph in 8-bit integers.

    python -m longtail.ext.onnx.export FOLDER TARGET

`longtail.ext.onnx.transformer` runs it in a process of its own.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longtail.models.encoders.families import num_positions
from longtail.models.encoders.pretrained import load_transformer

_MAX_DIFFERENCE = 1e-3
"""Between a number of the graph's and the transformer's last layer, which are of order 1."""


class _LastLayer(nn.Module):
    def __init__(self, transformer: nn.Module) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(
        self, input_ids: Int[Tensor, "batch token"], attention_mask: Int[Tensor, "batch token"]
    ) -> Float[Tensor, "batch token dim"]:
        hidden: Tensor = self.transformer(
            input_ids=input_ids, attention_mask=attention_mask
        ).last_hidden_state
        return hidden


def export(folder: Path, target: Path) -> None:
    """Write the graph of an encoder in float32, and compare its answers with the encoder's own.

    Args:
        folder: Of the encoder.
        target: The file to write.
    """
    transformer = load_transformer(folder)
    model = _LastLayer(transformer)
    most_tokens = min(num_positions(transformer), 2**16)
    shape = {
        0: torch.export.Dim("batch", min=1),
        1: torch.export.Dim("token", min=1, max=most_tokens),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch about itself
        torch.onnx.export(
            model,
            _example(2, min(9, most_tokens)),
            target,
            input_names=["input_ids", "attention_mask"],
            output_names=["hidden"],
            dynamo=True,
            dynamic_shapes={"input_ids": shape, "attention_mask": shape},
            external_data=False,
            verbose=False,
        )
    _compare(target, model, most_tokens)


def _example(num_texts: int, num_tokens: int) -> tuple[Tensor, Tensor]:
    """Return texts of a token that every vocabulary has, the last half padding."""
    ids = torch.ones((num_texts, num_tokens), dtype=torch.int64)
    mask = torch.ones_like(ids)
    mask[-1, (num_tokens + 1) // 2 :] = 0
    return ids, mask


def _compare(path: Path, model: _LastLayer, most_tokens: int) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for num_texts, num_tokens in ((1, 1), (3, min(14, most_tokens))):
        ids, mask = _example(num_texts, num_tokens)
        given = {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
        (found,) = session.run(None, given)
        with torch.inference_mode():
            expected = model(ids, mask).numpy()
        difference = float(np.abs(found - expected)[mask.numpy() == 1].max())
        if not difference <= _MAX_DIFFERENCE:
            raise RuntimeError(f"the graph's answers differ from the encoder's by {difference:.2g}")


def quantise(exact: Path, target: Path) -> None:
    """Write a graph whose matrices are 8-bit integers with a scale for each column.

    Activations are turned into such integers as they come (dynamic quantisation).

    Args:
        exact: The graph in float32.
        target: The file to write.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(exact, target, per_channel=True, weight_type=QuantType.QInt8)


def main(arguments: list[str]) -> None:
    """Write the graph that the command line names."""
    folder, target = map(Path, arguments)
    exact = target.with_name("exact.onnx")
    export(folder, exact)
    quantise(exact, target)
    exact.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
