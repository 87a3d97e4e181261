"""Which labels a query may get: what it names, and the rows of a catalogue that this leaves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Int64

from models.errors import RequestError
from models.labels.catalogue import LabelCatalogue

_MOST_NAMED = 5
"""Unknown ids that an error names."""
_MOST_ID_CHARACTERS = 100


@dataclass(frozen=True, eq=False)
class LabelSet:
    """Labels under a name, for many queries and for all versions of a model.

    A version that lacks some of them takes the others. Two sets are equal where they are one
    object, so that a set of many labels is looked up once.

    Attributes:
        name: What queries call it.
        ids: Of the labels.
    """

    name: str
    ids: tuple[str, ...]

    @cached_property
    def digest(self) -> str:
        """A hash that is the same for the same labels, whatever their order."""
        return hashlib.sha256(json.dumps(sorted(self.ids)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class LabelFilter:
    """The labels that a query wants, and those that it does not want.

    Attributes:
        include: Ids of the labels wanted; None: all, or those of `include_set`.
        exclude: Ids of labels that are not wanted, whether or not they are included.
        include_set: Labels wanted besides `include`.
        exclude_set: Labels not wanted besides `exclude`.
    """

    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    include_set: LabelSet | None = None
    exclude_set: LabelSet | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it lets every label through."""
        wants_all = self.include is None and self.include_set is None
        return wants_all and not self.exclude and self.exclude_set is None


@dataclass(frozen=True, slots=True)
class KnownLabels:
    """Which of the labels that a filter names a catalogue has.

    Attributes:
        include: Those of its `include`, each once.
        exclude: Those of its `exclude`, each once.
        num_of_include_set: How many of its `include_set`.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    num_of_include_set: int = 0


@dataclass(frozen=True, eq=False)
class Selection:
    """The labels of a catalogue that may be answered.

    Attributes:
        is_selected: Of every label, whether it may be.
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

    def select(self, wanted: LabelFilter | None) -> Selection | None:
        """Return the labels that a filter lets through, be there none; None where it lets all.

        Raises:
            RequestError: An id that the filter names is unknown, or all ids of the set to include
                are.
        """
        if wanted is None or wanted.is_empty:
            return None
        wants_all = wanted.include is None and wanted.include_set is None
        is_selected = np.full(len(self._catalogue), wants_all)
        if wanted.include is not None:
            is_selected[self._rows(wanted.include, "include")] = True
        if wanted.include_set is not None:
            is_selected[self._rows_included(wanted.include_set)] = True
        is_selected[self._rows(wanted.exclude, "exclude")] = False
        if wanted.exclude_set is not None:
            is_selected[self._rows_of_set(wanted.exclude_set)] = False
        return Selection(is_selected)

    def known(self, wanted: LabelFilter) -> KnownLabels:
        """Return which of the labels that a filter names there are; unknown ones are no error."""
        named = wanted.include_set
        return KnownLabels(
            include=self._known(wanted.include or ()),
            exclude=self._known(wanted.exclude),
            num_of_include_set=0 if named is None else len(self._rows_of_set(named)),
        )

    def _known(self, ids: Iterable[str]) -> tuple[str, ...]:
        found = (each for each in ids if self._catalogue.row_of_id(each) is not None)
        return tuple(dict.fromkeys(found))

    def _rows(self, ids: Iterable[str], field: str) -> list[int]:
        rows = [self._catalogue.row_of_id(label_id) for label_id in ids]
        if None in rows:
            _check_ids(ids, self._known(ids), field)
        return [row for row in rows if row is not None]

    def _rows_included(self, label_set: LabelSet) -> Int64[np.ndarray, member]:
        rows = self._rows_of_set(label_set)
        _check_set(label_set.name, len(label_set.ids), len(rows))
        return rows

    def _rows_of_set(self, label_set: LabelSet) -> Int64[np.ndarray, member]:
        if label_set not in self._rows_of_sets:
            rows = (self._catalogue.row_of_id(label_id) for label_id in label_set.ids)
            known = [row for row in rows if row is not None]
            self._rows_of_sets[label_set] = np.array(known, dtype=np.int64)
        return self._rows_of_sets[label_set]


def filters_of_parts(wanted: LabelFilter, known: Sequence[KnownLabels]) -> list[LabelFilter]:
    """Return what a filter means for each part of a catalogue that was divided.

    Args:
        wanted: For all labels.
        known: What each part has of it.

    Raises:
        RequestError: As `LabelSelector.select` does of the whole catalogue.
    """
    named = wanted.include_set
    members = None if named is None else (named.name, len(named.ids))
    check_known(known, wanted.include or (), wanted.exclude, members)
    wants_all = wanted.include is None and named is None
    return [
        replace(
            wanted,
            include=None if wants_all else part.include,
            exclude=part.exclude,
            include_set=named if part.num_of_include_set else None,
        )
        for part in known
    ]


def check_known(
    known: Sequence[KnownLabels],
    include: Iterable[str],
    exclude: Iterable[str],
    include_set: tuple[str, int] | None,
) -> None:
    """Refuse a filter that names labels which no part of a catalogue has.

    Args:
        known: What each part has of it.
        include: As in `LabelFilter`.
        exclude: As there.
        include_set: Name and size of the set to include.

    Raises:
        RequestError: As `LabelSelector.select` does of the whole catalogue.
    """
    _check_ids(include, (x for part in known for x in part.include), "include")
    if include_set is not None:
        _check_set(*include_set, sum(part.num_of_include_set for part in known))
    _check_ids(exclude, (x for part in known for x in part.exclude), "exclude")


def _check_ids(ids: Iterable[str], known: Iterable[str], field: str) -> None:
    """Refuse ids that no label has.

    Raises:
        RequestError: There are some.
    """
    unknown = dict.fromkeys(ids)
    for each in known:
        unknown.pop(each, None)
    if not unknown:
        return
    named = ", ".join(repr(each[:_MOST_ID_CHARACTERS]) for each in list(unknown)[:_MOST_NAMED])
    more = f" or {len(unknown) - _MOST_NAMED} more" if len(unknown) > _MOST_NAMED else ""
    raise RequestError(
        f"{field}: this version has no label with the id {named}{more}; leave such ids out, or "
        "put them into a stored set, of which a version takes those that it has"
    )


def _check_set(name: str, size: int, num_known: int) -> None:
    """Refuse a set to include of which there is no label.

    Raises:
        RequestError: There is none.
    """
    if not num_known:
        raise RequestError(
            f"include_set: this version has none of the {size} labels of the set {name!r}; choose "
            "another set or another version"
        )
