"""Which labels are below which: the relation of broader labels, as a vocabulary gives it.

A label may have several broader ones, and circles are followed once. Relations to concepts that are
no labels of the catalogue are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.models.labels.catalogue import LabelCatalogue


class LabelHierarchy:
    """The broader and narrower labels of a catalogue, by row."""

    def __init__(self, catalogue: LabelCatalogue) -> None:
        """Read the relations of a catalogue; some 0.3 s for a million of them."""
        self._broader: list[tuple[int, ...]] = []
        for row, label in enumerate(catalogue):
            rows = (catalogue.row_of_id(label_id) for label_id in label.broader)
            known = dict.fromkeys(each for each in rows if each is not None and each != row)
            self._broader.append(tuple(known))
        self._narrower: dict[int, list[int]] = {}
        for row, broader in enumerate(self._broader):
            for above in broader:
                self._narrower.setdefault(above, []).append(row)

    def __bool__(self) -> bool:
        """Whether any label is below another."""
        return bool(self._narrower)

    @cached_property
    def tops(self) -> list[int]:
        """The labels with narrower ones and none above, but for those in a circle with them.

        Of a circle at the top, the first label; so every label with relations is below one of them.
        """
        tops = [row for row in sorted(self._narrower) if not self._broader[row]]
        reached = set[int]().union(*(self._reached(row, self.narrower) for row in tops))
        for row in sorted(self._narrower):
            if row in reached:
                continue
            above = self._reached(row, self.broader)
            if above <= self._reached(row, self.narrower):  # nothing outside its own circle
                tops.append(row)
                reached |= self._reached(row, self.narrower)
        return tops

    def broader(self, row: int) -> tuple[int, ...]:
        """Return the labels right above one, in the order of its vocabulary."""
        return self._broader[row]

    def narrower(self, row: int) -> tuple[int, ...]:
        """Return the labels right below one, rising."""
        return tuple(self._narrower.get(row, ()))

    def below(self, row: int) -> Int64[np.ndarray, found]:
        """Return a label and all those below it, rising."""
        return np.array(sorted(self._reached(row, self.narrower)), dtype=np.int64)

    def above(self, row: int) -> Int64[np.ndarray, found]:
        """Return a label and all those above it, rising."""
        return np.array(sorted(self._reached(row, self.broader)), dtype=np.int64)

    def ancestors(self) -> Float32[csr_array, "label label"]:
        """Return, of each label, a row that is 1 for the label itself and for all above it."""
        rows = [self.above(row) for row in range(len(self._broader))]
        ends = np.cumsum([0, *map(len, rows)])
        columns = np.concatenate(rows) if rows else np.zeros(0, np.int64)
        size = len(self._broader)
        ones = np.ones(len(columns), dtype=np.float32)
        return csr_array((ones, columns, ends), shape=(size, size))

    def _reached(self, row: int, step: Callable[[int], tuple[int, ...]]) -> set[int]:
        found, left = {row}, [row]
        while left:
            new = [each for each in step(left.pop()) if each not in found]
            found.update(new)
            left += new
        return found
