"""Which labels feedback is about: those of the model, and new ones with a name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.changes.retired import row_in_use
from longtail.training.updating.feedback import Entry, ProposedLabel
from longtail.training.updating.texts import TextFeedback

_NEW = "new:"
"""Begins an id that is made from a name."""


@dataclass(frozen=True, slots=True)
class SaidOfText:
    """What is known of the labels of one text when all was said.

    Attributes:
        text: The text.
        document_id: What it is called.
        right: Rows of the labels that are right.
        wrong: Rows of the labels that are wrong.
    """

    text: str
    document_id: str
    right: frozenset[int]
    wrong: frozenset[int]


@dataclass(frozen=True, slots=True)
class SaidOfLabels:
    """What was said, in the labels of the model and new ones.

    Attributes:
        catalogue: The model's labels, then the new ones.
        num_new: New labels.
        texts: Those of which a label is known to be right or wrong.
        unknown: Ids that were said to be right or wrong and are no label's, sorted.
    """

    catalogue: LabelCatalogue
    num_new: int
    texts: list[SaidOfText]
    unknown: tuple[str, ...]


def read_labels(texts: Sequence[TextFeedback], catalogue: LabelCatalogue) -> SaidOfLabels:
    """Look up the labels, and make those that are proposed.

    Of several verdicts on a label of a text, the last one counts. What is said of a retired label
    is said of the one that replaces it; where none or several do, its id is unknown.

    A label that is proposed without an id is the label of the model, or the other proposed one,
    that has its name in whatever case, if there is just one; else a new one whose id is made of its
    name.

    Args:
        texts: What was said of each.
        catalogue: The labels of the model.
    """
    entries = [entry for text in texts for entry in text.entries]
    ids = _ids_of_proposed([label for entry in entries for label in entry.proposed], catalogue)
    new: dict[str, Label] = {}
    for label, label_id in ids.items():
        if catalogue.row_of_id(label_id) is None:
            new.setdefault(label_id, Label(label_id, label.name))
    extended = LabelCatalogue([*catalogue, *new.values()])
    known, unknown = [], set[str]()
    for text in texts:
        verdicts = _verdicts(text.entries, ids)
        rows = {row_in_use(extended, label_id): x for label_id, x in verdicts.items()}
        unknown |= {label_id for label_id in verdicts if row_in_use(extended, label_id) is None}
        right = frozenset(row for row, is_right in rows.items() if is_right and row is not None)
        wrong = frozenset(row for row, is_right in rows.items() if not is_right and row is not None)
        if right or wrong:
            known.append(SaidOfText(text.text, text.document_id, right, wrong))
    return SaidOfLabels(extended, len(new), known, tuple(sorted(unknown)))


def _verdicts(entries: Iterable[Entry], ids: dict[ProposedLabel, str]) -> dict[str, bool]:
    """Return whether labels are right, by id, as the last entry that names them says."""
    verdicts: dict[str, bool] = {}
    for entry in entries:
        verdicts.update(dict.fromkeys(entry.wrong, False))
        verdicts.update(dict.fromkeys(entry.right, True))
        verdicts.update({ids[label]: True for label in entry.proposed})
    return verdicts


def _ids_of_proposed(
    proposed: Iterable[ProposedLabel], catalogue: LabelCatalogue
) -> dict[ProposedLabel, str]:
    """Return the id of each label that is proposed, in their order."""
    each_once = list(dict.fromkeys(proposed))
    ids_by_name: dict[str, set[str]] = {}
    if each_once:
        pairs = [(label.name, label.id) for label in catalogue if not label.is_retired]
        pairs += [(label.name, label.id) for label in each_once if label.id]
        for name, label_id in pairs:
            ids_by_name.setdefault(_folded(name), set()).add(label_id)
    return {label: label.id or _id_of(label.name, ids_by_name) for label in each_once}


def _id_of(name: str, ids_by_name: dict[str, set[str]]) -> str:
    folded = _folded(name)
    found = ids_by_name.get(folded, set())
    return next(iter(found)) if len(found) == 1 else _NEW + folded.replace(" ", "-")


def _folded(name: str) -> str:
    return " ".join(name.casefold().split())
