"""What feedback says of each text: entries brought together, their texts found in the corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool

from longtail.training.data.dataset import Dataset
from longtail.training.formats.forms import SPLIT_NAMES
from longtail.training.updating.feedback import Entry, Feedback, sha256_of

_MEASURED = ("dev", "test")
MOST_DEV = 2_000
"""Documents of the corpus's dev split that calibrations, blends and aims are fitted on; those of
the feedback come on top. Three times as many take three times as long, most of it in the encoder.
"""


@dataclass(slots=True)
class TextFeedback:
    """What was said of one text.

    Attributes:
        text: The text.
        document_id: What it is called; its SHA-256 where nobody called it anything.
        entries: In their order.
    """

    text: str
    document_id: str
    entries: list[Entry] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class GatheredTexts:
    """What was said of all texts.

    Attributes:
        texts: In the order of the first entry of each.
        num_left_out: Texts that are in the corpus's dev or test split.
        num_unresolved: Entries without a text whose text is not in the corpus.
    """

    texts: list[TextFeedback]
    num_left_out: int
    num_unresolved: int


def gather_texts(feedback: Feedback, corpus: Dataset | None) -> GatheredTexts:
    """Bring together the entries of each text.

    A text that was not kept is looked for among the documents of the corpus, by its SHA-256 or by
    its id, where only one document has that. A text of the corpus's dev or test split is left out:
    a model is measured on it.

    Args:
        feedback: What was said.
        corpus: The corpus of the model; None: no text can be looked for.
    """
    measured: set[str] = set()
    if corpus is not None:
        for name in _measured(corpus):
            measured.update(map(sha256_of, corpus.split(name).texts()))
    found = _found_texts(feedback.entries, corpus)
    gathered: dict[str, TextFeedback] = {}
    left_out: set[str] = set()
    num_unresolved = 0
    for entry in feedback.entries:
        text = entry.text or found.get(entry.text_sha256) or found.get(_by_id(entry), "")
        digest = sha256_of(text)
        if not text:
            num_unresolved += 1
        elif digest in measured:
            left_out.add(digest)
        else:
            name = entry.document_id or f"sha256:{digest[:16]}"
            gathered.setdefault(digest, TextFeedback(text, name)).entries.append(entry)
    return GatheredTexts(list(gathered.values()), len(left_out), num_unresolved)


def dev_rows(texts: Iterable[str], most: int = MOST_DEV) -> Bool[np.ndarray, document]:
    """Return which documents of a dev split stand for all: those of the smallest SHA-256.

    Equal texts are taken together, so a few more than `most` may be taken.

    Args:
        texts: Of all documents; one is held at a time.
        most: So many, unless there are fewer.
    """
    digests = np.array([int(sha256_of(text)[:16], 16) for text in texts], dtype=np.uint64)
    last = np.sort(digests)[: max(1, most)][-1]
    is_chosen: Bool[np.ndarray, document] = digests <= last
    return is_chosen


def _measured(corpus: Dataset) -> Iterator[str]:
    return (name for name in _MEASURED if name in corpus.split_names)


def _found_texts(entries: Iterable[Entry], corpus: Dataset | None) -> dict[str, str]:
    """Return the texts of entries that have none, by SHA-256 or by `_by_id`."""
    wanted = [entry for entry in entries if not entry.text]
    if corpus is None or not wanted:
        return {}
    digests = {entry.text_sha256 for entry in wanted}
    names = {_by_id(entry) for entry in wanted}
    found: dict[str, str] = {}
    ambiguous: set[str] = set()
    for split_name in SPLIT_NAMES:
        if split_name not in corpus.split_names:
            continue
        for document in corpus.split(split_name):
            digest = sha256_of(document.text)
            if digest in digests:
                found[digest] = document.text
            name = _ID + document.id
            if name in names and found.setdefault(name, document.text) != document.text:
                ambiguous.add(name)
    return {name: text for name, text in found.items() if name not in ambiguous}


_ID = "id "
"""Before the id of a document, which so is no SHA-256."""


def _by_id(entry: Entry) -> str:
    """Return what stands for an entry that is found by the id of its document alone."""
    return _ID + entry.document_id if entry.document_id and not entry.text_sha256 else ""
