"""What a loaded model computes with: threads, the fastest backend of its encoder.

PyTorch and Transformers are imported where there is an encoder: they take as much memory as
all else of a model without one, and seconds to start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from longtail.models.errors import ConfigError, check_count
from longtail.models.extras import is_installed, require

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
        if is_installed("faiss"):
            import faiss

            faiss.omp_set_num_threads(num_threads)


def take_fastest_backend(encoder: DualEncoder) -> None:
    """Replace a transformer on the CPU by the fastest backend that gives the same answers."""
    from longtail.models.encoders.cpu.backend import choose_backend
    from longtail.models.encoders.families import is_transformer

    transformer = encoder.transformer
    if is_transformer(transformer):
        backend = choose_backend(transformer)
        if backend is not None:
            encoder.transformer = backend  # type: ignore[assignment]  # only read from now on


def padding_cost_of(dense: DenseParts) -> float:
    """Return what a token of padding costs an encoder, in tokens of text."""
    from longtail.models.encoders.cpu.unpadded import PADDING_COST, UnpaddedBert

    return PADDING_COST if isinstance(dense.encoder.transformer, UnpaddedBert) else 1.0
