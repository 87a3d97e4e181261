"""Exact top-k labels: sources of scores, and the Threshold Algorithm over sums of them.

A *source* scores labels for a batch of queries, with sorted and with random access. A scorer is a
monotone sum of sources; `rank` returns its exact top k (Fagin, Lotem & Naor 2003, section 4).
Everywhere: higher scores first, and of equal scores the smaller label index first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float32, Int64

NO_LABEL = -1
"""Fills a ranking's row where fewer than k labels can be scored; its score is -inf."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The best labels of each query: higher scores first, ties by the smaller label index.

    Attributes:
        labels: Label indices; `NO_LABEL` where fewer than k labels can be scored.
        scores: Their scores; -inf at `NO_LABEL`.
    """

    labels: Int64[np.ndarray, "batch k"]
    scores: Float32[np.ndarray, "batch k"]


class Source(Protocol):
    """Scores of all labels for one batch of queries (the queries are bound to the source)."""

    @property
    def num_queries(self) -> int:
        """Rows of the batch."""
        ...

    @property
    def num_labels(self) -> int:
        """Number of labels that the source can score; all others score -inf."""
        ...

    def top(self, rows: Int64[np.ndarray, "row"], m: int) -> Ranking:
        """Sorted access: the m best labels of these queries, exact, padded with `NO_LABEL`."""
        ...

    def score(
        self, rows: Int64[np.ndarray, "row"], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Random access: the scores of given labels; -inf for those that it can't score."""
        ...
