"""The rows of a catalogue that a query's filter leaves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Int64

from longtail.models.errors import RequestError
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.labels.filters import LabelFilter, LabelSet, check_ids, check_set
from longtail.models.labels.hierarchy import LabelHierarchy


@dataclass(frozen=True, eq=False)
class Selection:
    """The labels of a catalogue that may be answered.

    Attributes:
        is_selected: Whether each label may be answered.
    """

    is_selected: Bool[np.ndarray, label]

    @cached_property
    def labels(self) -> Int64[np.ndarray, selected]:
        """The labels that may be answered, rising."""
        return np.flatnonzero(self.is_selected).astype(np.int64, copy=False)

    def __len__(self) -> int:
        return len(self.labels)


class LabelSelector:
    """Finds the labels that filters mean in one catalogue."""

    def __init__(self, catalogue: LabelCatalogue) -> None:
        self._catalogue = catalogue
        self._rows_of_sets: WeakKeyDictionary[LabelSet, Int64[np.ndarray, member]] = (
            WeakKeyDictionary()
        )

    def select(self, requested: LabelFilter | None) -> Selection | None:
        """Return the labels that a filter lets through, be there none; None where it lets all.

        Labels out of use are let through by no filter, and not without one either.
        """
        if requested is None or requested.is_empty:
            return self._in_use
        includes_all = requested.include is None and requested.include_set is None
        is_selected = np.full(len(self._catalogue), includes_all)
        if requested.include is not None:
            is_selected[self._rows(requested.include, "include")] = True
        if requested.include_set is not None:
            is_selected[self._rows_included(requested.include_set)] = True
        is_selected[self._rows(requested.exclude, "exclude")] = False
        if requested.exclude_set is not None:
            is_selected[self._rows_of_set(requested.exclude_set)] = False
        if requested.under:
            is_selected &= self._is_under(requested.under)
        if requested.scheme is not None:
            is_selected &= self._is_of_scheme(requested.scheme)
        return Selection(is_selected & self._catalogue.in_use)

    @cached_property
    def _in_use(self) -> Selection | None:
        """The labels in use; None where all are."""
        in_use = self._catalogue.in_use
        return None if in_use.all() else Selection(in_use)

    @cached_property
    def hierarchy(self) -> LabelHierarchy:
        """Which labels are below which."""
        return LabelHierarchy(self._catalogue)

    def _is_under(self, ids: tuple[str, ...]) -> Bool[np.ndarray, label]:
        is_under = np.zeros(len(self._catalogue), dtype=bool)
        for row in self._rows(ids, "under"):
            is_under[self.hierarchy.below(row)] = True
        return is_under

    def _is_of_scheme(self, name: str) -> Bool[np.ndarray, label]:
        known = self._catalogue.rows_of_schemes
        if name not in known:
            there = ", ".join(map(repr, sorted(known)[:10])) or "none: its labels have no schemes"
            raise RequestError(
                f"schemes: this version has no label of {name[:100]!r}; expected some of {there}"
            )
        is_of_scheme = np.zeros(len(self._catalogue), dtype=bool)
        is_of_scheme[known[name]] = True
        return is_of_scheme

    def _rows(self, ids: Iterable[str], field: str) -> list[int]:
        rows = [self._catalogue.row_of_id(label_id) for label_id in ids]
        if None in rows:
            check_ids(ids, (x for x in ids if self._catalogue.row_of_id(x) is not None), field)
        return [row for row in rows if row is not None]

    def _rows_included(self, label_set: LabelSet) -> Int64[np.ndarray, member]:
        rows = self._rows_of_set(label_set)
        check_set(label_set.name, len(label_set.ids), len(rows))
        return rows

    def _rows_of_set(self, label_set: LabelSet) -> Int64[np.ndarray, member]:
        if label_set not in self._rows_of_sets:
            rows = (self._catalogue.row_of_id(label_id) for label_id in label_set.ids)
            known = [row for row in rows if row is not None]
            self._rows_of_sets[label_set] = np.array(known, dtype=np.int64)
        return self._rows_of_sets[label_set]
