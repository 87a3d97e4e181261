"""The label catalogue: metadata of every label of a bundle, in row order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Annotated, ClassVar, TypeAlias

import numpy as np
from jaxtyping import Bool, Float32, Int64
from pydantic import ConfigDict, Field

from longtail.models.errors import DataError
from longtail.models.files.rows import garbage_collection_off
from longtail.models.files.typed_json import json_forms
from longtail.models.names import MAX_DOCUMENTS

_Rows: TypeAlias = Mapping[str, tuple[int, ...]]
"""Rows by a string. Tuples of numbers: what is made after a model was loaded is looked through by
every full garbage collection, which holds up requests, and of these it lets go."""


@dataclass(frozen=True, slots=True)
class Label:
    """One label of the vocabulary.

    Attributes:
        id: The caller's identifier; unique in a catalogue.
        name: What people read.
        description: A text about the label that its publisher gave; may be empty.
        pseudo_description: Name and keywords as the label encoder read them (DEPL section 3.2);
            empty before training.
        training_count: Number of training documents that carry the label.
        alternative_names: Other names; in a bundle those that its label texts have.
        parents: Broader labels: names, in a bundle those that its label texts have; ids in a label
            file.
        names: Preferred names by language, where a vocabulary gives them.
        notation: Its code in a classification; may be empty.
        broader: Ids of broader labels or concepts, which need not be in the catalogue.
        is_deprecated: Whether its publisher wants it no longer used.
        is_retired: Whether a change of the vocabulary has taken it out of use: no scorer answers it
            any more, but it is still known by its id.
        replaced_by: Ids of the labels that are to be used instead of it.
        scheme: Names of the schemes that it belongs to, such as "topic" or "genre".
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    id: str
    name: str
    description: str = ""
    pseudo_description: str = ""
    training_count: Annotated[int, Field(ge=0, le=MAX_DOCUMENTS)] = 0
    alternative_names: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict, hash=False)
    notation: str = ""
    broader: tuple[str, ...] = ()
    is_deprecated: bool = False
    is_retired: bool = False
    replaced_by: tuple[str, ...] = ()
    scheme: tuple[str, ...] = ()

    @property
    def is_in_use(self) -> bool:
        """Whether scorers may answer it."""
        return not self.is_retired


FIELDS_OF_MODELS = ("pseudo_description", "training_count", "is_retired")
"""Fields that training or an edit gives to a label; those of a label file are not read."""


class LabelCatalogue:
    """All labels in row order: the index of a label is its row in every matrix of the bundle."""

    def __init__(self, labels: Iterable[Label]) -> None:
        """Keep the labels in the order given."""
        self._labels = tuple(labels)
        if not self._labels:
            raise DataError("label catalogue: no labels; give at least one")
        self._index_by_id = {label.id: index for index, label in enumerate(self._labels)}
        if len(self._index_by_id) != len(self._labels):
            seen: set[str] = set()
            twice = next(x.id for x in self._labels if x.id in seen or seen.add(x.id))  # type: ignore[func-returns-value]
            raise DataError(f"label catalogue: id {twice!r} occurs twice; ids must be unique")

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> Label:
        return self._labels[index]

    def __iter__(self) -> Iterator[Label]:
        return iter(self._labels)

    @cached_property
    def training_counts(self) -> Int64[np.ndarray, label]:
        """Number of training documents of each label."""
        return np.array([label.training_count for label in self._labels], dtype=np.int64)

    @property
    def num_training_pairs(self) -> int:
        """Pairs of a training document and a label, over which priors are taken."""
        return int(self.training_counts.sum())

    @cached_property
    def log_priors(self) -> Float32[np.ndarray, label]:
        """Log pi of each label, in nats: its share of all training pairs.

        Every label counts half a pair more than it has, so that those without any have a prior too.
        """
        num_pairs = self.num_training_pairs + 0.5 * len(self)
        shares = (self.training_counts + 0.5) / num_pairs
        log_priors: Float32[np.ndarray, label] = np.log(shares).astype(np.float32)
        return log_priors

    @cached_property
    def in_use(self) -> Bool[np.ndarray, label]:
        """Whether scorers may answer each label (see `Label.is_retired`)."""
        return np.array([label.is_in_use for label in self._labels], dtype=np.bool_)

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """The languages in which labels have names, where a vocabulary gives them; sorted."""
        return tuple(sorted({language for label in self for language in label.names}))

    @cached_property
    def shown_language(self) -> str | None:
        """The language that most labels show their name in; None where none is known."""
        shown = Counter(
            x for label in self for x, name in label.names.items() if name == label.name
        )
        return shown.most_common(1)[0][0] if shown else None

    @cached_property
    def has_hierarchy(self) -> bool:
        """Whether any label is below another one of the catalogue."""
        return any(label_id in self._index_by_id for label in self for label_id in label.broader)

    @cached_property
    def _indices_by_name(self) -> _Rows:
        return _rows_by((label.name, row) for row, label in enumerate(self._labels))

    @cached_property
    def rows_of_schemes(self) -> Mapping[str, Int64[np.ndarray, member]]:
        """The rows of each scheme's labels, rising; of a catalogue without schemes empty."""
        pairs = ((name, row) for row, label in enumerate(self._labels) for name in label.scheme)
        return {name: np.array(rows, dtype=np.int64) for name, rows in _rows_by(pairs).items()}

    def row_of_id(self, label_id: str) -> int | None:
        """Return the row of the label with this id; None where there is none."""
        return self._index_by_id.get(label_id)

    @cached_property
    def _indices_by_notation(self) -> _Rows:
        rows = enumerate(self._labels)
        return _rows_by((label.notation, row) for row, label in rows if label.notation)

    @cached_property
    def _indices_in_languages(self) -> _Rows:
        return _rows_by(
            (name, row)
            for row, label in enumerate(self._labels)
            for name in set(label.names.values()) - {label.name}
        )

    def knows(self, key: str) -> bool:
        """Return whether a label has this id, notation, or name in any language."""
        return key in self._index_by_id or any(key in table for _, table in self._tables)

    @property
    def _tables(self) -> tuple[tuple[str, _Rows], ...]:
        """What labels are known by besides their ids, in the order in which it counts."""
        return (
            ("are named", self._indices_by_name),
            ("have the notation", self._indices_by_notation),
            ("are in another language named", self._indices_in_languages),
        )

    def index_of(self, key: str) -> int:
        """Return the row of the label with this id, else name, notation, or name in a language.

        Of labels that share one, those out of use count only where all are.
        """
        if key in self._index_by_id:
            return self._index_by_id[key]
        for what, table in self._tables:
            everywhere = table.get(key, ())
            found = [row for row in everywhere if self._labels[row].is_in_use] or everywhere
            if len(found) == 1:
                return found[0]
            if found:
                ids = ", ".join(repr(self._labels[index].id) for index in found[:5])
                raise DataError(f"{len(found)} labels {what} {key[:100]!r} (ids {ids}); use the id")
        raise DataError(f"unknown label {key[:100]!r}; it is neither an id nor a name of a label")

    def replaced(self, **columns: Iterable[object]) -> LabelCatalogue:
        """Return a copy in which each named field takes its values, one per label, in row order."""
        names = list(columns)
        rows = zip(*columns.values(), strict=True)
        labels = (
            replace(label, **dict(zip(names, row, strict=True)))
            for label, row in zip(self._labels, rows, strict=True)
        )
        return LabelCatalogue(labels)

    def to_jsonl(self) -> str:
        """Return one JSON object a line, in row order."""
        return "".join(
            json.dumps(_fields_of(label), ensure_ascii=False, sort_keys=True) + "\n"
            for label in self._labels
        )

    @classmethod
    def from_jsonl(cls, text: str) -> LabelCatalogue:
        """Read what `to_jsonl` wrote."""
        lines = text.split("\n")[:-1]
        with garbage_collection_off():
            return cls(
                label
                for start in range(0, len(lines), _LINES_AT_ONCE)
                for label in _labels_of_lines(lines[start : start + _LINES_AT_ONCE], start + 1)
            )


def with_names_of_parents(labels: Iterable[Label], known: Iterable[Label]) -> list[Label]:
    """Return labels with the names of their parents in place of the ids, which stay in `broader`.

    Args:
        labels: Their `parents` are ids.
        known: Labels that may be parents; parents that are none of them are left out.
    """
    name_of = {label.id: label.name for label in known}
    return [
        replace(
            label,
            parents=tuple(name_of[x] for x in label.parents if x in name_of),
            broader=label.broader or label.parents,
        )
        for label in labels
    ]


def named_label(label: Label) -> Label:
    """Return what a model of names keeps of a label: all it is called, and names of its parents."""
    return Label(
        label.id,
        label.name,
        alternative_names=label.alternative_names,
        parents=label.parents,
        notation=label.notation,
        is_retired=label.is_retired,
    )


_REQUIRED = {"id", "name", "description", "pseudo_description", "training_count"}
"""Fields that every line has, even where they hold nothing."""
_, _read_label = json_forms(Label)
_, _read_labels = json_forms(tuple[Label, ...])
_LINES_AT_ONCE = 1000
"""Lines that are parsed together; many more would have too many elements for `json_forms`."""


def _rows_by(pairs: Iterable[tuple[str, int]]) -> _Rows:
    """Return the rows of each string."""
    rows: dict[str, list[int]] = {}
    for string, row in pairs:
        rows.setdefault(string, []).append(row)
    return {string: tuple(found) for string, found in rows.items()}


def _labels_of_lines(lines: Sequence[str], first: int) -> Iterable[Label]:
    """Read one label a line, numbered from `first`; all at once, and one by one if one is wrong."""
    if all(line.startswith("{") and line.endswith("}") for line in lines):
        with suppress(ValueError):
            labels: Sequence[Label] = _read_labels(f"[{','.join(lines)}]")
            if len(labels) == len(lines):
                return labels
    return (_label_of_line(number, line) for number, line in enumerate(lines, first))


def _label_of_line(number: int, line: str) -> Label:
    try:
        found: Label = _read_label(line)
    except ValueError as error:
        raise DataError(f"label catalogue, line {number}: {error}") from error
    return found


def _fields_of(label: Label) -> dict[str, object]:
    """Return what is in a line; optional fields that hold nothing are left out."""
    values = ((each.name, getattr(label, each.name)) for each in fields(label))
    return {name: value for name, value in values if value or name in _REQUIRED}


def row_in_use(catalogue: LabelCatalogue, label_id: str) -> int | None:
    """Return the row of a label, or of the one that replaces it; None where there is none."""
    row, seen = catalogue.row_of_id(label_id), set[str]()
    while row is not None and not catalogue[row].is_in_use:
        label = catalogue[row]
        if len(label.replaced_by) != 1 or label.id in seen:
            return None
        seen.add(label.id)
        row = catalogue.row_of_id(label.replaced_by[0])
    return row
