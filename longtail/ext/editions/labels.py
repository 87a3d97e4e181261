"""The labels of a bundle after changes of its vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64

from longtail.ext.editions.changes import Replacement, VocabularyChanges, texts_of
from longtail.models.bundle.bundle import Bundle
from longtail.models.edit.rewriting import added_label
from longtail.models.errors import DataError
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.text import keyword_part, pseudo_description


@dataclass(frozen=True, slots=True)
class ChangedLabels:
    """The labels of a bundle after changes of its vocabulary; each keeps its row.

    Attributes:
        labels: In row order, those of the bundle first; training counts are the old ones.
        num_before: Labels of the bundle.
        parents: Names of the labels right above, by the row of each label whose names, parents or
            use have changed: what a model of names must read again.
        full_names: All other names of labels, by row, where a change tells them.
        texts_changed: Rows whose text for the encoder is another one, rising; new ones among them.
        into: By the row of a label that was merged, the row of the label that it is part of now.
        split: Rows of labels that were split.
        unknown: Ids in the changes that the bundle doesn't have.
        present: Ids of new labels that the bundle has already.
    """

    labels: tuple[Label, ...]
    num_before: int
    parents: dict[int, tuple[str, ...]]
    full_names: dict[int, tuple[str, ...]]
    texts_changed: tuple[int, ...]
    into: dict[int, int]
    split: tuple[int, ...]
    unknown: tuple[str, ...]
    present: tuple[str, ...]

    @property
    def rows_after(self) -> Int64[np.ndarray, label]:
        """The row of every label, or of the label that it was merged into."""
        rows = np.arange(len(self.labels), dtype=np.int64)
        rows[list(self.into)] = list(self.into.values())
        return rows


def changed_labels(bundle: Bundle, changes: VocabularyChanges) -> ChangedLabels:
    """Return the labels of a bundle after changes."""
    return _Changing(bundle).after(changes)


class _Changing:
    """The labels of a bundle while they are changed."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._labels = list(bundle.catalogue)
        self._rows = {label.id: row for row, label in enumerate(self._labels)}
        self._changed: set[int] = set()
        self._full_names: dict[int, tuple[str, ...]] = {}
        self._unknown: dict[str, None] = {}
        settings = bundle.manifest.training.get("descriptions", {})
        self._num_names: int = settings.get("alternative_names", 0)
        self._has_parents = bool(settings.get("parents"))

    def after(self, changes: VocabularyChanges) -> ChangedLabels:
        # Make all changes, and return what has become of the labels.
        present = self._add(changes.new)
        renamed = self._rename(changes)
        for each in changes.reparented:
            self._change(each.id, broader=each.after)
        for label_id in changes.restored:
            self._change(label_id, is_deprecated=False, is_retired=False, replaced_by=())
        for gone in changes.deprecated:
            self._retire(gone.id, ())
        into = self._replace(changes.merged)
        split = self._replace(changes.split)
        if not any(label.is_in_use for label in self._labels):
            raise DataError("changes: no label would be left in use; keep one at least")
        self._check_in_use({*into, *split})
        parents = self._name_parents(renamed)
        return ChangedLabels(
            texts_changed=tuple(self._describe(parents)),  # before the labels are taken
            labels=tuple(self._labels),
            num_before=len(self._bundle.catalogue),
            parents=parents,
            full_names=self._full_names,
            into={row: by[0] for row, by in into.items()},
            split=tuple(split),
            unknown=tuple(self._unknown),
            present=present,
        )

    def _add(self, new: Sequence[Label]) -> tuple[str, ...]:
        present = tuple(label.id for label in new if label.id in self._rows)
        for label in new:
            if label.id in self._rows:
                continue
            row = self._rows[label.id] = len(self._labels)
            plain = replace(label, parents=(), broader=label.broader or label.parents)
            self._labels.append(added_label(plain, self._bundle))
            self._full_names[row] = label.alternative_names
            self._changed.add(row)
        return present

    def _rename(self, changes: VocabularyChanges) -> set[int]:
        # Change texts; return the rows of the labels that have another name.
        rows = set()
        for each in changes.renamed:
            texts = texts_of(each)
            if not str(texts.get("name", each.id)).strip():
                raise DataError(f"renamed label {each.id!r}: its name is blank; give one")
            row = self._change(each.id, **texts)
            if row is None:
                continue
            if "name" in texts:
                rows.add(row)
            if "alternative_names" in texts:
                names = self._labels[row].alternative_names
                self._full_names[row] = names
                self._labels[row] = replace(
                    self._labels[row], alternative_names=names[: self._num_names]
                )
        return rows

    def _replace(self, replacements: Iterable[Replacement]) -> dict[int, tuple[int, ...]]:
        """Retire labels; return the rows of their replacements, by their rows."""
        found = {}
        for each in replacements:
            row = self._rows.get(each.id)
            by = tuple(label_id for label_id in each.by if label_id in self._rows)
            self._unknown |= dict.fromkeys(x for x in each.by if x not in self._rows)
            was_in_use = row is not None and self._labels[row].is_in_use
            self._retire(each.id, by)
            if row is not None and by and was_in_use:
                found[row] = tuple(self._rows[label_id] for label_id in by)
        return found

    def _retire(self, label_id: str, by: tuple[str, ...]) -> None:
        self._change(label_id, is_deprecated=True, is_retired=True, replaced_by=by)

    def _change(self, label_id: str, **values: object) -> int | None:
        """Give a label other values; return its row, None where there is none."""
        row = self._rows.get(label_id)
        if row is None:
            self._unknown[label_id] = None
            return None
        self._labels[row] = replace(self._labels[row], **values)  # type: ignore[arg-type]
        self._changed.add(row)
        return row

    def _check_in_use(self, rows: Iterable[int]) -> None:
        for row in rows:
            label = self._labels[row]
            for other in label.replaced_by:
                if not self._labels[self._rows[other]].is_in_use:
                    raise DataError(
                        f"replaced label {label.id!r}: {other!r}, which is to be used instead, is "
                        "out of use, too; name a label in use"
                    )

    def _name_parents(self, renamed: set[int]) -> dict[int, tuple[str, ...]]:
        """Return the names of the parents of all labels that changed, or whose parents did."""
        ids = {self._labels[row].id for row in renamed}
        if ids:
            children = (
                row for row, label in enumerate(self._labels) if not ids.isdisjoint(label.broader)
            )
            self._changed.update(children)
        found = {}
        for row in sorted(self._changed):
            label = self._labels[row]
            above = (self._rows[x] for x in label.broader if x in self._rows)
            found[row] = tuple(self._labels[each].name for each in above)
            if self._has_parents:
                self._labels[row] = replace(label, parents=found[row])
        return found

    def _describe(self, rows: Iterable[int]) -> Iterator[int]:
        """Make the texts for the encoder again, with their keywords.

        Yields:
            The rows of those that are others now.
        """
        old = self._bundle.catalogue
        for row in rows:
            label, keywords = self._labels[row], ""
            if row < len(old):
                has_text = bool(old[row].pseudo_description)
                if not has_text or pseudo_description(label) == pseudo_description(old[row]):
                    continue
                keywords = keyword_part(old[row])
            text = pseudo_description(label, [keywords])
            self._labels[row] = replace(label, pseudo_description=text)
            yield row


def catalogue_of(changed: ChangedLabels, counts: Int64[np.ndarray, label]) -> LabelCatalogue:
    """Return the catalogue, with the numbers of training documents."""
    return LabelCatalogue(
        label if label.training_count == count else replace(label, training_count=count)
        for label, count in zip(changed.labels, counts.tolist(), strict=True)
    )
