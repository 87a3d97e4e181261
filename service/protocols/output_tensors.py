"""Answers of the Open Inference Protocol v2, as JSON or as binary tensors."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from longtail.models.results import UNLIKE_TRAINING
from longtail.service.engine.engine import EngineAnswer
from longtail.service.schemas.base import Answer

NO_SCORE = float(np.finfo(np.float32).min)
"""Fills scores where a text has fewer labels than asked for: JSON has no infinity."""
NO_PROBABILITY = -1.0
_LENGTH = struct.Struct("<I")
Scalar = bool | int | float | str


class TensorMetadata(Answer):
    """A tensor that goes in or comes out."""

    name: str
    datatype: str
    shape: list[int]
    """-1 where it depends on the request."""


class OutputTensor(Answer):
    """An output: its values, or how many bytes of them lie behind the JSON."""

    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, int] | None = None
    data: list[Any] | None = None


class InferAnswer(Answer):
    """The labels of texts, as tensors."""

    model_name: str
    model_version: str
    id: str | None = None
    parameters: dict[str, Scalar]
    """The scorer and the correction that made the scores, and the model's digest."""
    outputs: list[OutputTensor]


def packed(content: bytes) -> bytes:
    """Return a body as gzip."""
    return gzip.compress(content, compresslevel=1, mtime=0)


def _grid(answer: EngineAnswer, k: int, value_of: Callable[[Any], Any], filler: Any) -> list[Any]:
    """Return a value of each label, k a text, row by row."""
    values = []
    for prediction in answer.predictions:
        values += [value_of(label) for label in prediction.labels]
        values += [filler] * (k - len(prediction.labels))
    return values


def _ids(answer: EngineAnswer, k: int) -> list[str]:
    return _grid(answer, k, lambda label: label.id, "")


def _names(answer: EngineAnswer, k: int) -> list[str]:
    return _grid(answer, k, lambda label: label.name, "")


def _scores(answer: EngineAnswer, k: int) -> list[float]:
    return _grid(answer, k, lambda label: _float32(label.score), NO_SCORE)


def _probabilities(answer: EngineAnswer, k: int) -> list[float]:
    def value_of(label: Any) -> float:
        return NO_PROBABILITY if label.probability is None else _float32(label.probability)

    return _grid(answer, k, value_of, NO_PROBABILITY)


def _label_counts(answer: EngineAnswer, _: int) -> list[int]:
    return [len(prediction.labels) for prediction in answer.predictions]


def _unreliable(answer: EngineAnswer, k: int) -> list[bool]:
    values = []
    for prediction in answer.predictions:
        named = {each for warning in prediction.warnings for each in warning.label_ids}
        values += [label.id in named for label in prediction.labels]
        values += [False] * (k - len(prediction.labels))
    return values


def _unlike_training(answer: EngineAnswer, _: int) -> list[bool]:
    return [
        any(warning.code == UNLIKE_TRAINING for warning in prediction.warnings)
        for prediction in answer.predictions
    ]


def _token_counts(answer: EngineAnswer, _: int) -> list[int]:
    return [prediction.num_tokens for prediction in answer.predictions]


def _text_token_counts(answer: EngineAnswer, _: int) -> list[int]:
    return [prediction.num_text_tokens for prediction in answer.predictions]


def _known_token_counts(answer: EngineAnswer, _: int) -> list[int]:
    return [prediction.known_tokens for prediction in answer.predictions]


def _truncated(answer: EngineAnswer, _: int) -> list[bool]:
    return [prediction.truncated for prediction in answer.predictions]


def _exact(answer: EngineAnswer, _: int) -> list[bool]:
    return [prediction.exact for prediction in answer.predictions]


def _float32(value: float) -> float:
    return float(np.float32(value))


def _bytes(values: Sequence[str]) -> bytes:
    encoded = [value.encode() for value in values]
    return b"".join(_LENGTH.pack(len(value)) + value for value in encoded)


_DATATYPES: dict[str, Callable[[Sequence[Any]], bytes]] = {
    "BYTES": _bytes,
    "FP32": lambda values: np.asarray(values, dtype="<f4").tobytes(),
    "INT32": lambda values: np.asarray(values, dtype="<i4").tobytes(),
    "BOOL": lambda values: np.asarray(values, dtype="?").tobytes(),
}
_WRITERS: dict[str, tuple[TensorMetadata, Callable[[EngineAnswer, int], list[Any]]]] = {
    name: (TensorMetadata(name=name, datatype=datatype, shape=[-1] * width), values_of)
    for name, datatype, width, values_of in (
        ("label_ids", "BYTES", 2, _ids),
        ("label_names", "BYTES", 2, _names),
        ("scores", "FP32", 2, _scores),
        ("probabilities", "FP32", 2, _probabilities),
        ("unreliable", "BOOL", 2, _unreliable),
        ("unlike_training", "BOOL", 1, _unlike_training),
        ("num_labels", "INT32", 1, _label_counts),
        ("num_tokens", "INT32", 1, _token_counts),
        ("num_text_tokens", "INT32", 1, _text_token_counts),
        ("known_tokens", "INT32", 1, _known_token_counts),
        ("truncated", "BOOL", 1, _truncated),
        ("exact", "BOOL", 1, _exact),
    )
}
OUTPUTS = tuple(info for info, _ in _WRITERS.values())
