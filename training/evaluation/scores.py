"""Scores of labels as text, as the Extreme Classification Repository lays out its matrices.

The first line is a header, "N L" (documents, labels); then a line for each document holds
`label:score` pairs, so that an empty one has none:

    0:0.25 8:1.5

Labels are column indices and count from 0. Scores are decimal numbers, read to the nearest double
and then to the nearest float32. Pairs may come in any order; a label comes once a line.

A line that breaks a rule becomes a `BadLine`; a file that can't be used as a whole is an error.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int32, Int64

from longtail.models.errors import DataError
from longtail.models.files.text_files import BadLine, lines

_MAX_LABELS = 2**31 - 1  # column indices are 32 bits wide
_FLOAT_FORMAT = "%d:%.9g"  # nine digits tell every float32 from its neighbours
_INDEX = re.compile(rb"[0-9]+")
_DECIMAL = re.compile(rb"[+-]?([0-9]++(\.[0-9]*+)?|\.[0-9]++)([eE][+-]?[0-9]++)?")


@dataclass(frozen=True, slots=True)
class ScoreHeader:
    """The first line of a file.

    Attributes:
        num_documents: Lines that follow.
        num_labels: What a label index is below.
    """

    num_documents: int
    num_labels: int


@dataclass(frozen=True, slots=True)
class ScoreLine:
    """What a line holds.

    Attributes:
        labels: Label indices, in the order of the file, each once.
        scores: Of each; finite.
    """

    labels: Int32[np.ndarray, pair]
    scores: Float32[np.ndarray, pair]


def read_header(path: Path) -> ScoreHeader:
    """Read the first line of a file.

    Args:
        path: The file; compressed where its name ends in `.gz`.
    """
    _, line = next(lines(path), (1, b""))
    numbers = line.split()
    is_header = len(numbers) == 2 and all(map(_INDEX.fullmatch, numbers))
    if not is_header or not 0 < int(numbers[1]) <= _MAX_LABELS:
        shown = reprlib.repr(line.decode(errors="replace").rstrip())
        raise DataError(
            f"{path}, line 1: got {shown}, expected the number of documents and that of labels, "
            f"the latter from 1 to {_MAX_LABELS}"
        )
    return ScoreHeader(*map(int, numbers))


def read_score_lines(path: Path, header: ScoreHeader) -> Iterator[ScoreLine | BadLine]:
    """Yield what the lines after the header hold, in order, and a problem for each bad line."""
    num_read = 0
    for number, line in lines(path):
        if number > 1:
            num_read += 1
            yield _parsed(line, number, header)
    if num_read != header.num_documents:
        raise DataError(
            f"{path}: the header says {header.num_documents} lines, {num_read} follow it; "
            "is the file whole?"
        )


def join_pairs(
    columns: Int32[np.ndarray, pair] | Int64[np.ndarray, pair],
    values: Float32[np.ndarray, pair],
) -> str:
    """Return `column:value` pairs as they stand in a line."""
    return " ".join(
        [_FLOAT_FORMAT % pair for pair in zip(columns.tolist(), values.tolist(), strict=True)]
    )


def _parsed(line: bytes, number: int, header: ScoreHeader) -> ScoreLine | BadLine:
    """Return what a line holds, or all that is wrong with it."""
    scores: dict[int, float] = {}
    reasons: list[str] = []
    for token in line.split():
        label, colon, score = token.partition(b":")
        reason = _reason(token, label, score, header.num_labels) if colon else _no_pair(token)
        if not reason and int(label) in scores:
            reason = f"label {int(label)} occurs twice"
        if reason:
            reasons.append(reason)
        else:
            scores[int(label)] = float(score)
    if reasons:
        return BadLine(number, "; ".join(reasons))
    return ScoreLine(
        labels=np.fromiter(scores.keys(), dtype=np.int32, count=len(scores)),
        scores=np.fromiter(scores.values(), dtype=np.float64, count=len(scores)).astype(np.float32),
    )


def _reason(token: bytes, label: bytes, score: bytes, num_labels: int) -> str:
    """Return what is wrong with a pair; empty: nothing."""
    if not _INDEX.fullmatch(label) or len(label) > 10 or int(label) >= num_labels:
        return f"label {_shown(label)} of {_shown(token)}: expected 0 to {num_labels - 1}"
    if not _DECIMAL.fullmatch(score):
        return f"score {_shown(score)} of label {int(label)} is no decimal number"
    with np.errstate(over="ignore"):
        is_finite = bool(np.isfinite(np.float32(float(score))))
    return "" if is_finite else f"score {_shown(score)} of label {int(label)} exceeds 32 bits"


def _no_pair(token: bytes) -> str:
    return f"{_shown(token)} is no pair; expected label:score"


def _shown(token: bytes) -> str:
    return reprlib.repr(token.decode(errors="replace"))
