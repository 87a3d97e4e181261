"""Which training documents each step of a stage learns from."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int64

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
        seed: Of the stage; the order of an epoch follows from it and the number of the epoch.
    """

    lengths: Int64[np.ndarray, document]
    epochs: int
    batch_size: int
    batch_tokens: int | None
    seed: Sequence[int]

    @cached_property
    def _ends(self) -> Int64[np.ndarray, epochs]:
        """Steps done at the end of each epoch."""
        if self.batch_tokens is None:
            per_epoch = -(-len(self.lengths) // self.batch_size)
            return per_epoch * np.arange(1, self.epochs + 1, dtype=np.int64)
        return np.cumsum([len(self.epoch(each)) for each in range(self.epochs)], dtype=np.int64)

    @property
    def num_steps(self) -> int:
        """Steps of all epochs."""
        return int(self._ends[-1]) if self.epochs else 0

    @property
    def num_documents(self) -> int:
        """Documents of all epochs."""
        return self.epochs * len(self.lengths)

    def batches(self, first: int) -> itertools.chain[Int64[np.ndarray, batch]]:
        """Return the batches from a step on, to the end of the last epoch."""
        epoch = int(np.searchsorted(self._ends, first, side="right"))
        before = int(self._ends[epoch - 1]) if epoch else 0
        return itertools.chain.from_iterable(
            self.epoch(each)[first - before if each == epoch else 0 :]
            for each in range(epoch, self.epochs)
        )

    def num_seen(self, step: int) -> int:
        """Return the documents of the first steps."""
        epoch = int(np.searchsorted(self._ends, step, side="right"))
        if epoch == self.epochs:
            return self.num_documents
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
        """Return the documents, sorted by length and cut into batches within both bounds."""
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
