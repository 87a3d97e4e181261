"""What feedback says of each text: its entries gathered, their texts and their labels looked up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from longtail.models.bundle.trained_on import digest_of
from longtail.models.feedback import Entry, ProposedLabel, sha256_of
from longtail.models.labels.catalogue import Label, LabelCatalogue, row_in_use
from longtail.training.data.dataset import Dataset

_NEW = "new:"
"""Begins an id that is made from a name."""
_ID = "id "
"""Before the id of a document, so that it is not taken for a SHA-256."""


@dataclass(frozen=True, slots=True)
class TextVerdicts:
    """The verdicts on the labels of one text.

    Attributes:
        text: The text.
        document_id: Its id; made of its SHA-256 where no entry has one.
        right: Rows of the labels that are right.
        wrong: Rows of the labels that are wrong.
    """

    text: str
    document_id: str
    right: frozenset[int]
    wrong: frozenset[int]


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdicts of all entries.

    Attributes:
        catalogue: The labels of the model, then the new ones.
        num_new: New labels.
        texts: Texts with a verdict on a known label, in the order of their first entries.
        unknown: Ids in verdicts that no label has, sorted.
        num_left_out: Texts that are in the corpus's dev or test split.
        num_unresolved: Entries without a text whose text is not in the corpus.
    """

    catalogue: LabelCatalogue
    num_new: int
    texts: list[TextVerdicts]
    unknown: tuple[str, ...]
    num_left_out: int
    num_unresolved: int


def read_verdicts(entries: Sequence[Entry], catalogue: LabelCatalogue, corpus: Dataset) -> Verdicts:
    """Gather the entries of each text, look up their labels, and make the proposed ones.

    A text that was not kept is looked up in the corpus by its SHA-256, or by its id, where the
    corpus has ids and only one document has that. A text of the dev or test split is left out:
    models are measured on it.

    Of several verdicts on a label of a text, the last one counts. A verdict on a label out of
    use counts for the one that replaces it; where none or several do, its id is unknown. A proposed
    label without an id is the label of the model, or the other proposed one, that has its name in
    whatever case, if there is just one; else a new one whose id is made of its name.

    Args:
        entries: The feedback.
        catalogue: The labels of the model.
        corpus: The corpus of the model.
    """
    measured = {
        digest
        for name in corpus.split_names
        if name != "train"
        for digest in corpus.split(name).scan().texts.tolist()
    }
    ids = _ids_of_proposed([label for entry in entries for label in entry.proposed], catalogue)
    new: dict[str, Label] = {}
    for label, label_id in ids.items():
        if catalogue.row_of_id(label_id) is None:
            new.setdefault(label_id, Label(label_id, label.name))
    extended = LabelCatalogue([*catalogue, *new.values()])
    texts, unknown, num_left_out = [], set[str](), 0
    gathered, num_unresolved = _gathered(entries, corpus)
    for text, own in gathered.items():
        if digest_of(text) in measured:
            num_left_out += 1
            continue
        verdicts = _verdicts(own, ids)
        rows = {label_id: row_in_use(extended, label_id) for label_id in verdicts}
        unknown |= {label_id for label_id, row in rows.items() if row is None}
        found = {row: verdicts[label_id] for label_id, row in rows.items() if row is not None}
        if found:
            right = frozenset(row for row, is_right in found.items() if is_right)
            name = next((x.document_id for x in own[:1] if x.document_id), _name_of(text))
            texts.append(TextVerdicts(text, name, right, frozenset(found) - right))
    return Verdicts(extended, len(new), texts, tuple(sorted(unknown)), num_left_out, num_unresolved)


def _name_of(text: str) -> str:
    return f"sha256:{sha256_of(text)[:16]}"


def _gathered(entries: Sequence[Entry], corpus: Dataset) -> tuple[dict[str, list[Entry]], int]:
    """Return the entries by text, and the number of those whose text is not known."""
    found = _found_texts([entry for entry in entries if not entry.text], corpus)
    gathered: dict[str, list[Entry]] = {}
    num_unresolved = 0
    for entry in entries:
        text = entry.text or found.get(entry.text_sha256 or "") or found.get(_by_id(entry), "")
        if text:
            gathered.setdefault(text, []).append(entry)
        else:
            num_unresolved += 1
    return gathered, num_unresolved


def _found_texts(wanted: Sequence[Entry], corpus: Dataset) -> dict[str, str]:
    """Return the texts of entries that have none, by SHA-256 or by `_by_id`."""
    if not wanted:
        return {}
    keys = {entry.text_sha256 or _by_id(entry) for entry in wanted}
    found: dict[str, str] = {}
    ambiguous: set[str] = set()
    for split_name in corpus.split_names:
        for document in corpus.split(split_name):
            named = {_ID + document.id} if document.has_id else set[str]()
            for key in {sha256_of(document.text), *named} & keys:
                if found.setdefault(key, document.text) != document.text:
                    ambiguous.add(key)
    return {key: text for key, text in found.items() if key not in ambiguous}


def _by_id(entry: Entry) -> str:
    """Return the key of an entry that has no more than the id of its document."""
    return _ID + entry.document_id if entry.document_id and not entry.text_sha256 else ""


def _verdicts(entries: Iterable[Entry], ids: dict[ProposedLabel, str]) -> dict[str, bool]:
    """Return whether labels are right, by id, as the last entry that names them says."""
    verdicts: dict[str, bool] = {}
    for entry in entries:
        verdicts.update(dict.fromkeys(entry.rejected, False))
        verdicts.update(dict.fromkeys(entry.right, True))
        verdicts.update({ids[label]: True for label in entry.proposed})
    return verdicts


def _ids_of_proposed(
    proposed: Iterable[ProposedLabel], catalogue: LabelCatalogue
) -> dict[ProposedLabel, str]:
    """Return the id of each label that is proposed, in their order."""
    each_once = list(dict.fromkeys(proposed))
    ids_by_name: dict[str, set[str]] = {}
    for name, label_id in _named(each_once, catalogue) if each_once else ():
        ids_by_name.setdefault(_folded(name), set()).add(label_id)
    found = {}
    for label in each_once:
        folded = _folded(label.name)
        same = ids_by_name.get(folded, set())
        of_name = next(iter(same)) if len(same) == 1 else _NEW + folded.replace(" ", "-")
        found[label] = label.id or of_name
    return found


def _named(
    proposed: Iterable[ProposedLabel], catalogue: LabelCatalogue
) -> Iterator[tuple[str, str]]:
    yield from ((label.name, label.id) for label in catalogue if label.is_in_use)
    yield from ((label.name, label.id) for label in proposed if label.id)


def _folded(name: str) -> str:
    return " ".join(name.casefold().split())
