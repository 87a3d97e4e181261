"""Which labels a training step scores: the batch's positives, hard negatives, uniform draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int64
from scipy.sparse import csr_array

from longtail.models.ranking.top_k import NO_LABEL


@dataclass(frozen=True, slots=True)
class LabelSubsets:
    """Draws the fixed-size label subset S_b of each batch (DEPL section 3.3).

    Attributes:
        truth: Labels of the training documents.
        hard: Hard negatives of each document, hardest first, padded with `NO_LABEL`.
        size: Labels a subset, at most all; it holds every positive, even if those are more.
    """

    truth: Float32[csr_array, "document label"]
    hard: Int64[np.ndarray, "document hard"]
    size: int

    def draw(
        self, rows: Int64[np.ndarray, batch], rng: np.random.Generator
    ) -> Int64[np.ndarray, sampled]:
        """Return the label subset of a batch, rising and without repeats.

        First all positives of the batch; then its hard negatives, those of the first rank before
        those of the second, as long as there is room; then labels drawn uniformly from the rest.
        """
        num_labels = self.truth.shape[1]
        size = min(self.size, num_labels)
        chosen = np.zeros(num_labels, dtype=bool)
        chosen[self.truth[rows].indices] = True
        for rank in range(self.hard.shape[1]):
            candidates = np.unique(self.hard[rows, rank])
            candidates = candidates[candidates != NO_LABEL]
            candidates = rng.permutation(candidates[~chosen[candidates]])
            chosen[candidates[: max(0, size - int(chosen.sum()))]] = True
        rest = np.flatnonzero(~chosen)
        missing = max(0, size - int(chosen.sum()))
        chosen[rng.choice(rest, size=missing, replace=False)] = True
        return np.flatnonzero(chosen)


def positives_among(
    truth: Float32[csr_array, "batch label"], labels: Int64[np.ndarray, sampled]
) -> Bool[np.ndarray, "batch sampled"]:
    """Return which of the (rising) labels each document carries."""
    is_positive: Bool[np.ndarray, "batch sampled"] = truth[:, labels].toarray() > 0
    return is_positive


def hard_negatives(
    ranked: Int64[np.ndarray, "document k"], truth: Float32[csr_array, "document label"], count: int
) -> Int64[np.ndarray, "document hard"]:
    """Return the `count` best-ranked labels that a document does not carry.

    Args:
        ranked: A ranker's labels for each document, best first, padded with `NO_LABEL`.
        truth: The labels that each carries.
        count: Wanted a document; rows with fewer are padded with `NO_LABEL`.
    """
    hard = np.full((len(ranked), count), NO_LABEL, dtype=np.int64)
    for row, labels in enumerate(ranked):
        positives = truth.indices[truth.indptr[row] : truth.indptr[row + 1]]
        wrong = labels[(labels != NO_LABEL) & ~np.isin(labels, positives)][:count]
        hard[row, : len(wrong)] = wrong
    return hard
