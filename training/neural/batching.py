"""Which training documents each step of a stage learns from, and which labels it scores."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float32, Int64
from scipy.sparse import csr_array

from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.configuration.sections import StageConfig

ORDER = 1
"""What the seed of a stage is for: the order of an epoch."""
_POOL = 64
"""Batches that are sorted together: long enough for little padding, short enough for chance."""


@dataclass(frozen=True)
class BatchPlan:
    """The batches of all epochs of a stage; every document is in one batch of each epoch.

    Attributes:
        lengths: Tokens that each document takes in a batch that pads none of them.
        epochs: How many.
        batch_size: Documents a batch, at most.
        batch_tokens: Tokens a batch with its padding, at most, in batches of documents of similar
            length; None: documents come together whatever their length. At least the greatest
            length.
        seed: The stage's seed; the order of an epoch follows from it and the number of the epoch.
        max_steps: Steps after which the stage ends, within its epochs; None: with the last epoch.
    """

    lengths: Int64[np.ndarray, document]
    epochs: int
    batch_size: int
    batch_tokens: int | None
    seed: Sequence[int]
    max_steps: int | None = None

    @classmethod
    def of(
        cls, lengths: Int64[np.ndarray, document], config: StageConfig, seed: Sequence[int]
    ) -> BatchPlan:
        """Return the plan of a stage."""
        return cls(
            lengths, config.epochs, config.batch_size, config.batch_tokens, seed, config.max_steps
        )

    @cached_property
    def _ends(self) -> Int64[np.ndarray, epochs]:
        if self.batch_tokens is None:
            per_epoch = -(-len(self.lengths) // self.batch_size)
            return per_epoch * np.arange(1, self.epochs + 1, dtype=np.int64)
        return np.cumsum([len(self.epoch(each)) for each in range(self.epochs)], dtype=np.int64)

    @property
    def num_steps(self) -> int:
        """Steps of all epochs, or as many as there may be."""
        of_epochs = int(self._ends[-1]) if self.epochs else 0
        return of_epochs if self.max_steps is None else min(of_epochs, self.max_steps)

    @property
    def num_documents(self) -> int:
        """Documents of all steps; one counts as often as it is read."""
        return self.num_seen(self.num_steps)

    def batches(self, first: int) -> itertools.islice[Int64[np.ndarray, batch]]:
        """Return the batches from a step on, to the last one."""
        epoch = int(np.searchsorted(self._ends, first, side="right"))
        before = int(self._ends[epoch - 1]) if epoch else 0
        left = itertools.chain.from_iterable(
            self.epoch(each)[first - before if each == epoch else 0 :]
            for each in range(epoch, self.epochs)
        )
        return itertools.islice(left, self.num_steps - first)

    def num_seen(self, step: int) -> int:
        """Return the documents of the first steps."""
        epoch = int(np.searchsorted(self._ends, step, side="right"))
        if epoch == self.epochs:
            return self.epochs * len(self.lengths)
        before = int(self._ends[epoch - 1]) if epoch else 0
        seen = sum(map(len, self.epoch(epoch)[: step - before])) if step > before else 0
        return epoch * len(self.lengths) + seen

    def epoch(self, number: int) -> list[Int64[np.ndarray, batch]]:
        """Return the batches of an epoch, in their order."""
        rng = np.random.default_rng([*self.seed, ORDER, number])
        order = rng.permutation(len(self.lengths)).astype(np.int64)
        if self.batch_tokens is None:
            return _cut(order, self.batch_size)
        batches: list[Int64[np.ndarray, batch]] = []
        for pool in _cut(order, _POOL * self.batch_size):
            batches += self._by_length(pool, self.batch_tokens)
        return [batches[each] for each in rng.permutation(len(batches))]

    def _by_length(
        self, rows: Int64[np.ndarray, row], most_tokens: int
    ) -> list[Int64[np.ndarray, batch]]:
        rows = rows[np.argsort(self.lengths[rows], kind="stable")]
        lengths, batches, start = self.lengths[rows], [], 0
        while start < len(rows):
            some = lengths[start : start + self.batch_size]
            padded = some * np.arange(1, len(some) + 1)  # of the first one, two, ...; it rises
            count = max(1, int(np.searchsorted(padded, most_tokens, side="right")))
            batches.append(rows[start : start + count])
            start += count
        return batches


def _cut(rows: Int64[np.ndarray, row], size: int) -> list[Int64[np.ndarray, part]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


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
