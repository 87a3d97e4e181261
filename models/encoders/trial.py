"""What an encoder computes in here, how fast, and how far from float32: measured, not guessed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float32

from longtail.models.encoders.check import usable_dtype
from longtail.models.encoders.cpu.backend import choose_backend
from longtail.models.encoders.cpu.unpadded import UnpaddedBert
from longtail.models.encoders.dual_encoder import DualEncoder, encode_all
from longtail.models.encoders.onnx import (
    ONNX_INT8,
    OnnxPrecision,
    OnnxTransformer,
    load_onnx_transformer,
)
from longtail.models.encoders.pretrained import Precision, dtype_for
from longtail.models.encoders.tokens import TokenBatch, TokenizedTexts
from longtail.models.errors import LongtailError

TriedPrecision: TypeAlias = Precision | OnnxPrecision
PRECISIONS: tuple[TriedPrecision, ...] = ("float32", "bfloat16", ONNX_INT8)
_BATCH_SIZE = 16


@dataclass(frozen=True, slots=True)
class Trial:
    """One way to compute document vectors on the processor.

    Attributes:
        precision: Of `PRECISIONS`.
        backend: What computes it.
        short_text_ms: Milliseconds of the shortest text alone, the median.
        texts_per_second: Of all texts, in batches of 16.
        distance: From the vectors of float32 as Hugging Face computes them: the Euclidean norm of
            all differences, as a share of that of all vectors.
    """

    precision: str
    backend: str
    short_text_ms: float
    texts_per_second: float
    distance: float


@dataclass(frozen=True, slots=True)
class Failure:
    """A way that can't be tried here.

    Attributes:
        precision: Of `PRECISIONS`.
        reason: Why.
    """

    precision: str
    reason: str


@dataclass(frozen=True, slots=True)
class TriedEncoder:
    """What is tried.

    Attributes:
        read: Returns the dual encoder in float32, a new one each time.
        folder: Where its transformer lies.
        texts: To encode; at least one.
        pad_id: Of its tokenizer.
    """

    read: Callable[[], DualEncoder]
    folder: Path
    texts: TokenizedTexts
    pad_id: int


def automatic_precision() -> str:
    """Return what "auto" computes an encoder in on this processor."""
    return str(dtype_for("auto", "cpu")).removeprefix("torch.")


def try_precisions(
    encoder: TriedEncoder,
    precisions: Sequence[TriedPrecision] = PRECISIONS,
    *,
    seconds: float = 1.0,
) -> Iterator[Trial | Failure]:
    """Yield how each precision does, as it is tried.

    Args:
        encoder: What to try.
        precisions: Of `PRECISIONS`.
        seconds: For the short text, and for the batches, of each; one pass is made in any case.
    """
    exact = encode_all(encoder.read(), encoder.texts, "document", pad_id=encoder.pad_id)
    for precision in precisions:
        try:
            model = _prepared(encoder, precision)
        except LongtailError as error:
            yield Failure(precision, str(error))
            continue
        yield _tried(encoder, model, precision, exact, seconds)


def _prepared(encoder: TriedEncoder, precision: TriedPrecision) -> DualEncoder:
    """Return the encoder as a service would compute it.

    Raises:
        ConfigError: It can't.
    """
    model = encoder.read()
    if precision == "onnx-int8":
        transformer = load_onnx_transformer(encoder.folder)
        model.transformer = transformer  # type: ignore[assignment]  # only read from now on
    else:
        dtype = dtype_for(precision, "cpu")
        model.to(usable_dtype(model.transformer, dtype, is_chosen=False))
        backend = choose_backend(model.transformer)
        if backend is not None:
            model.transformer = backend  # type: ignore[assignment]  # only read from now on
    return model


def _tried(
    encoder: TriedEncoder,
    model: DualEncoder,
    precision: str,
    exact: Float32[np.ndarray, "text dim"],
    seconds: float,
) -> Trial:
    found = encode_all(model, encoder.texts, "document", pad_id=encoder.pad_id)
    order = np.argsort(encoder.texts.lengths, kind="stable")
    groups = [order[i : i + _BATCH_SIZE] for i in range(0, len(order), _BATCH_SIZE)]
    batches = [encoder.texts.batch(rows, encoder.pad_id, "cpu") for rows in groups]
    short = [encoder.texts.batch(order[:1], encoder.pad_id, "cpu")]
    return Trial(
        precision=precision,
        backend=_backend_of(model),
        short_text_ms=1000 * _seconds_of(model, short, seconds),
        texts_per_second=len(order) / _seconds_of(model, batches, seconds),
        distance=float(np.linalg.norm(found - exact) / np.linalg.norm(exact)),
    )


def _backend_of(model: DualEncoder) -> str:
    transformer: object = model.transformer
    if isinstance(transformer, UnpaddedBert):
        return "without padding"
    if isinstance(transformer, OnnxTransformer):
        return "ONNX Runtime"
    return "as it is"


@torch.inference_mode()
def _seconds_of(model: DualEncoder, batches: Sequence[TokenBatch], seconds: float) -> float:
    """Return the median time of a pass over all batches."""
    taken: list[float] = []
    started = time.perf_counter()
    while not taken or time.perf_counter() - started < seconds:
        before = time.perf_counter()
        for batch in batches:
            model(batch, "document")
        taken.append(time.perf_counter() - before)
    return median(taken)
