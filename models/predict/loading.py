"""From a bundle to the parts that a model computes with: threads, precisions, tracing.

PyTorch and Transformers are imported where there is an encoder: they take as much memory as
all else of a model without one, and seconds to start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from longtail.models.bundle.bundle import Bundle
from longtail.models.errors import ConfigError, check_count
from longtail.models.extras import has_faiss, require
from longtail.models.kinds.storage import read_parts
from longtail.models.names import OnnxPrecision, Precision
from longtail.models.parts.model_parts import ModelParts

if TYPE_CHECKING:
    from longtail.models.encoders.dual_encoder import DualEncoder
    from longtail.models.parts.dense_parts import DenseParts


def set_threads(num_threads: int | None) -> None:
    """Set the number of threads of PyTorch and FAISS in the whole process; None changes nothing."""
    require("cpu", "a model with an encoder")
    import torch

    if num_threads is not None:
        check_count("num_threads", num_threads, ConfigError)
        torch.set_num_threads(num_threads)
        if has_faiss():
            import faiss

            faiss.omp_set_num_threads(num_threads)


def load_parts(
    bundle: Bundle,
    device: str | None,
    num_threads: int | None,
    precision: Precision | OnnxPrecision,
) -> tuple[ModelParts, str | None, Precision]:
    """Return the parts of a bundle, and the device and precision that PyTorch uses for them.

    Args:
        bundle: An opened bundle.
        device: "cpu" or "cuda"; None: a GPU if there is one.
        num_threads: Threads of ONNX Runtime; None: as many as it chooses.
        precision: Precision of the encoder; those of ONNX Runtime need the CPU.
    """
    parts = read_parts(bundle)
    if precision != "onnx-int8":
        return parts, device, precision
    if device == "cuda":
        raise ConfigError(
            f"precision is {precision!r} and device 'cuda'; expected device 'cpu', or another "
            "precision"
        )
    if parts.dense is not None:
        from longtail.extensions import encoder_loader

        transformer = encoder_loader(precision)(bundle.encoder_folder, num_threads)
        parts.dense.encoder.transformer = transformer  # only read from now on
    return parts, "cpu", "float32"  # which is of the poolers


def take_fastest_backend(encoder: DualEncoder) -> None:
    """Replace a transformer on the CPU by the fastest backend that gives the same answers."""
    from longtail.models.encoders.cpu.backend import choose_backend
    from longtail.models.encoders.families import is_transformer

    transformer = encoder.transformer
    if is_transformer(transformer):
        backend = choose_backend(transformer)
        if backend is not None:
            encoder.transformer = backend  # type: ignore[assignment]  # only read from now on


def precision_of(dense: DenseParts) -> str:
    """Return the precision of an encoder, such as "bfloat16"."""
    transformer: Any = dense.encoder.transformer
    precision: str | None = getattr(transformer, "precision", None)  # of an extension
    return precision or str(transformer.dtype).removeprefix("torch.")


def padding_cost_of(dense: DenseParts) -> float:
    """Return what a token of padding costs an encoder, in tokens of text."""
    from longtail.models.encoders.cpu.unpadded import PADDING_COST, UnpaddedBert

    return PADDING_COST if isinstance(dense.encoder.transformer, UnpaddedBert) else 1.0
