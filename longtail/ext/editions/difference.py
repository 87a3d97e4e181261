"""The difference between two states of a vocabulary, label by label."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from longtail.ext.editions.changes import (
    TEXT_FIELDS,
    Deprecation,
    Renaming,
    Reparenting,
    Replacement,
    VocabularyChanges,
)
from longtail.models.errors import DataError
from longtail.models.files.rows import Fields, id_of, string_of, take_csv_rows
from longtail.models.labels.catalogue import Label
from longtail.models.labels.cells import labels_of_cell

logger = logging.getLogger(__name__)
Replacements = Mapping[str, tuple[str, ...]]
"""Ids of replacements, by the id of the label that is out of use."""
ID, REPLACED_BY = "id", "replaced_by"
_COLUMNS = ((ID,), (REPLACED_BY,))


class _State:
    """A vocabulary at one time: which of its labels are in use, and what replaces the others."""

    def __init__(self, labels: Iterable[Label], replacements: Replacements) -> None:
        self.labels = {label.id: label for label in labels}
        self._replacements = {
            label.id: label.replaced_by for label in self.labels.values() if label.replaced_by
        }
        self._replacements |= replacements

    def uses(self, label_id: str) -> bool:
        label = self.labels.get(label_id)
        return label is not None and not label.is_deprecated and label_id not in self._replacements

    def names_replacement(self, label_id: str) -> bool:
        """Whether something is said to replace a label, whether or not it can be followed."""
        return label_id in self._replacements

    def replaced_by(self, label_id: str) -> tuple[str, ...]:
        """Return the labels in use that replace a label, through all replacements."""
        found, seen, left = set[str](), {label_id}, [label_id]
        while left:
            for other in self._replacements.get(left.pop(), ()):
                if self.uses(other):
                    found.add(other)
                elif other not in seen:
                    seen.add(other)
                    left.append(other)
        return tuple(sorted(found))


def difference(
    old: Iterable[Label],
    new: Iterable[Label],
    merges: Replacements | None = None,
    *,
    max_alternative_names: int | None = None,
) -> VocabularyChanges:
    """Return the changes; labels are identified by their ids.

    Args:
        old: All labels of the old state, including deprecated ones.
        new: All labels of the new state, likewise. A label of the old state that is not here is
            gone, which counts as deprecated.
        merges: Replacements that take precedence over those of the vocabularies.
        max_alternative_names: Number of other names that are compared; None: all.
    """
    given = merges or {}
    before, after = _State(_cut(old, max_alternative_names), {}), {label.id: label for label in new}
    # What the new state does not have is still replaced as the old one says.
    kept = {
        label_id: label.replaced_by
        for label_id, label in before.labels.items()
        if label.replaced_by and label_id not in after
    }
    now = _State(_cut(after.values(), max_alternative_names), {**kept, **given})
    _check(given, before, now)
    ids = sorted(before.labels)
    used = [label_id for label_id in ids if now.uses(label_id)]
    pairs = [(before.labels[label_id], now.labels[label_id]) for label_id in used]
    replaced = _replaced(before, now, ids)
    return VocabularyChanges(
        new=tuple(after[x] for x in sorted(after.keys() - before.labels.keys()) if now.uses(x)),
        renamed=tuple(_renaming(*each) for each in pairs if _texts(each[0]) != _texts(each[1])),
        merged=tuple(each for each in replaced if len(each.by) == 1),
        split=tuple(each for each in replaced if len(each.by) > 1),
        deprecated=tuple(
            Deprecation(each.id, each.name, each.is_gone) for each in replaced if not each.by
        ),
        restored=tuple(label_id for label_id in used if not before.uses(label_id)),
        reparented=tuple(
            Reparenting(old.id, _above(old), _above(new))
            for old, new in pairs
            if sorted(_above(old)) != sorted(_above(new))
        ),
    )


def _cut(labels: Iterable[Label], num_names: int | None) -> Iterable[Label]:
    if num_names is None:
        return labels
    return (
        replace(label, alternative_names=label.alternative_names[:num_names])
        if len(label.alternative_names) > num_names
        else label
        for label in labels
    )


def _check(merges: Replacements, before: _State, now: _State) -> None:
    for label_id, others in merges.items():
        for each in (label_id, *others):
            if each not in before.labels and each not in now.labels:
                raise DataError(
                    f"merges: {each!r} is the id of no label, in the old vocabulary or the new; "
                    "correct it"
                )
        if not now.replaced_by(label_id):
            raise DataError(
                f"merges: {label_id!r} is to be replaced by {', '.join(map(repr, others))}, which "
                "the new vocabulary does not use; name a label that it uses"
            )


def _replaced(before: _State, now: _State, ids: Iterable[str]) -> list[Replacement]:
    """Return the labels that are out of use now, and were not, or were replaced by others."""
    found = []
    for label_id in ids:
        if now.uses(label_id):
            continue
        by = now.replaced_by(label_id)
        if before.uses(label_id) or (by and by != before.replaced_by(label_id)):
            if now.names_replacement(label_id) and not by:
                logger.warning(
                    "label %r is to be replaced by what leads to no label in use: it is taken as "
                    "deprecated",
                    label_id,
                )
            name = before.labels[label_id].name
            found.append(Replacement(label_id, name, by, label_id not in now.labels))
    return found


def _texts(label: Label) -> tuple[object, ...]:
    return (
        label.name,
        label.names,
        label.alternative_names,
        label.description.strip(),
        label.notation,
        sorted(label.scheme),
    )


def _renaming(old: Label, new: Label) -> Renaming:
    changed = [name for name in TEXT_FIELDS if getattr(old, name) != getattr(new, name)]
    before, after = ({name: _value(label, name) for name in changed} for label in (old, new))
    return Renaming(new.id, before, after)


def _value(label: Label, name: str) -> Any:
    value = getattr(label, name)
    return list(value) if isinstance(value, tuple) else value


def _above(label: Label) -> tuple[str, ...]:
    return label.broader or label.parents


def read_merges(path: Path) -> dict[str, tuple[str, ...]]:
    """Return what replaces each label, by id: one label where it was merged, several where split.

    Args:
        path: CSV with the columns `id` and `replaced_by`; several ids in a cell have semicolons
            between, and an id may be in several lines.
    """
    found: dict[str, list[str]] = {}

    def take(fields: Fields) -> None:
        label_id, others = _replacement_of(fields)
        found.setdefault(label_id, []).extend(others)

    take_csv_rows(path, _COLUMNS, take, "don't say what replaces a label")
    return {label_id: tuple(dict.fromkeys(others)) for label_id, others in found.items()}


def _replacement_of(fields: Fields) -> tuple[str, list[str]]:
    # Return the id of a label and those of the labels that replace it.
    label_id = id_of(fields, ID)
    cell = string_of(fields, REPLACED_BY)
    others = [each for each in map(str.strip, map(str, labels_of_cell(cell))) if each]
    if not label_id or not others:
        raise DataError(f"no {REPLACED_BY if label_id else ID!r}; give both")
    if label_id in others:
        raise DataError(f"label {label_id!r} is to replace itself; name another one")
    return label_id, others
