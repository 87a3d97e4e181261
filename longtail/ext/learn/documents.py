"""The training documents of a corpus with feedback applied: corrected labels, and new documents."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array, vstack

from longtail.ext.learn.verdicts import TextVerdicts, Verdicts, smallest_digests
from longtail.models.bundle.trained_on import digests_of
from longtail.models.corpus.raw import part_of
from longtail.models.files.durable import make_private_folder, write_lines_durably
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.scorers.tfidf import TfidfModel, terms_of
from longtail.training.assessment.truth import in_order_of
from longtail.training.configuration.sections import SparseConfig
from longtail.training.data.dataset import Dataset, open_dataset

LEAST_DOCUMENTS = 10
"""Training documents of every label of a document that joins the dev split: documents of rarer
labels are worth more as examples."""
MOST_DEV = 2_000
"""Documents of the corpus's dev split that calibrations, blends and parts are fitted on; those of
the feedback come on top. Three times as many take three times as long, most of it in the encoder.
"""


@dataclass(frozen=True, slots=True)
class ChangedDocuments:
    """The training documents of a corpus with feedback applied.

    Attributes:
        corpus: The corpus.
        labels: Labels of its training documents, corrected, and of the new ones below them.
        new: Texts that became training documents.
        dev: Texts that join the dev split.
        num_corrected: Documents of the corpus whose labels changed.
        num_known: Texts whose labels the corpus has as the verdicts say.
        touched: Labels whose documents changed, or that were rejected for new ones, rising.
    """

    corpus: Dataset
    labels: Float32[csr_array, "document label"]
    new: list[TextVerdicts]
    dev: list[TextVerdicts]
    num_corrected: int
    num_known: int
    touched: Int64[np.ndarray, touched]

    def texts(self) -> Iterator[str]:
        """Return the texts of all training documents, in the order of `labels`."""
        return chain(self.corpus.split("train").texts(), (each.text for each in self.new))

    def documents(self) -> Iterator[tuple[str, str]]:
        """Return the id and the text of all training documents, in the order of `labels`."""
        old = ((each.id, each.text) for each in self.corpus.split("train"))
        return chain(old, ((each.document_id, each.text) for each in self.new))

    @property
    def counts(self) -> Int64[np.ndarray, label]:
        """Training documents of each label."""
        return _counts(self.labels)

    def unknown_share(self, tfidf: TfidfModel, config: SparseConfig) -> float:
        """Return the share of words that a vocabulary lacks, of those of a vocabulary of new texts.

        0 where there are none.

        Args:
            tfidf: The vocabulary of the model.
            config: In how many documents a word is to occur, and in which share of them at most.
        """
        counts = Counter(
            word
            for each in self.new
            for word in set(terms_of(tfidf.cleaned(each.text), 1, tfidf.analyzer, tfidf.forms))
        )
        most = config.max_document_share * len(self.new)
        words = [word for word, x in counts.items() if config.min_document_count <= x <= most]
        return sum(tfidf.token_of(word) is None for word in words) / max(1, len(words))


def change_documents(corpus: Dataset, verdicts: Verdicts, *, has_dev: bool) -> ChangedDocuments:
    """Correct the labels of training documents, and add texts that are none yet.

    A text is a training document if both are equal up to white space. A new document's labels
    without a verdict are absent, as in training. It joins the dev split if the hash of its text
    says so, and each of its labels has `LEAST_DOCUMENTS` in the corpus.

    Args:
        corpus: The corpus of the model.
        verdicts: The feedback; its catalogue has the numbers of documents of the model's labels.
        has_dev: Whether there is a dev split to join.
    """
    catalogue, scan = verdicts.catalogue, corpus.split("train").scan()
    labels = in_order_of(catalogue, corpus, scan.labels)
    counts = _counts(labels)
    # Labels whose documents a former feedback changed that this one leaves as they are.
    is_stale = (counts != catalogue.training_counts) & catalogue.in_use
    touched = set(np.flatnonzero(is_stale).tolist())
    order = np.argsort(scan.texts, kind="stable")
    digests = digests_of(each.text for each in verdicts.texts)
    starts, stops = (
        np.searchsorted(scan.texts[order], digests, side).tolist() for side in ("left", "right")
    )
    replaced: dict[int, frozenset[int]] = {}
    new, dev, num_known = [], [], 0
    for text, start, stop in zip(verdicts.texts, starts, stops, strict=True):
        if start < stop:
            changed = _corrected(labels, order[start:stop], text)
            touched.update(*(labels_of(labels, row) ^ now for row, now in changed.items()))
            replaced |= changed
            num_known += not changed
        elif has_dev and _is_for_dev(text, counts):
            dev.append(text)
        else:
            new.append(text)
            touched |= text.right | text.wrong
    rows = _with_rows(labels, replaced, [each.right for each in new])
    rising = np.array(sorted(touched), dtype=np.int64)
    return ChangedDocuments(corpus, rows, new, dev, len(replaced), num_known, rising)


def _counts(labels: Float32[csr_array, "document label"]) -> Int64[np.ndarray, label]:
    return np.bincount(labels.indices, minlength=labels.shape[1]).astype(np.int64)


def labels_of(labels: Float32[csr_array, "document label"], row: int) -> frozenset[int]:
    """Return the labels of a document."""
    return frozenset(labels.indices[slice(*labels.indptr[row : row + 2])].tolist())


def _corrected(
    labels: Float32[csr_array, "document label"], rows: Int64[np.ndarray, row], text: TextVerdicts
) -> dict[int, frozenset[int]]:
    """Return the labels of documents of one text that its verdicts change."""
    now = {row: (labels_of(labels, row) | text.right) - text.wrong for row in rows.tolist()}
    return {row: own for row, own in now.items() if own != labels_of(labels, row)}


def _is_for_dev(text: TextVerdicts, counts: Int64[np.ndarray, label]) -> bool:
    is_frequent = counts[list(text.right)] >= LEAST_DOCUMENTS
    return bool(text.right) and bool(is_frequent.all()) and part_of(text.text) == "dev"


def _with_rows(
    labels: Float32[csr_array, "document label"],
    replaced: dict[int, frozenset[int]],
    new: Sequence[frozenset[int]],
) -> Float32[csr_array, "changed label"]:
    """Return the labels of documents with some replaced, and those of new ones below them."""
    order = np.arange(labels.shape[0] + len(new))
    order[list(replaced)] = labels.shape[0] + np.arange(len(replaced))
    order[labels.shape[0] :] += len(replaced)
    changed = matrix_of([*replaced.values(), *new], labels.shape[1])
    found: csr_array = csr_array(vstack([labels, changed], format="csr")[order])
    return found


def matrix_of(rows: Sequence[frozenset[int]], num_labels: int) -> Float32[csr_array, "row label"]:
    """Return a matrix with ones at the labels of each row."""
    indices = np.array([label for row in rows for label in sorted(row)], dtype=np.int32)
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    ones = np.ones(len(indices), dtype=np.float32)
    return csr_array((ones, indices, indptr), shape=(len(rows), num_labels))


def write_dev_corpus(
    corpus: Dataset, catalogue: LabelCatalogue, changed: ChangedDocuments, folder: Path
) -> Dataset:
    """Write a private corpus of the dev documents alone, over the labels of the model.

    Args:
        corpus: The corpus, with a dev split, of which at most `MOST_DEV` documents are taken.
        catalogue: The labels of the model.
        changed: The documents that join them; labels that the corpus lacks are left out, as nobody
            looked for them in its own documents.
        folder: Made where it is not there.
    """
    ids, num_known = [label.id for label in catalogue], len(corpus.labels)
    split = corpus.split("dev")
    chosen = split.part(smallest_digests(split.texts(), MOST_DEV))
    labels = in_order_of(catalogue, corpus, chosen.scan().labels)
    rows = [(text, labels_of(labels, row)) for row, text in enumerate(chosen.texts())]
    rows += [(each.text, frozenset(x for x in each.right if x < num_known)) for each in changed.dev]
    documents = ({"text": text, "labels": [ids[x] for x in sorted(own)]} for text, own in rows)
    make_private_folder(folder)
    names = (json.dumps({"id": label_id, "name": label_id}) for label_id in ids)
    write_lines_durably(folder / "labels.jsonl", names)
    write_lines_durably(folder / "dev.jsonl", map(json.dumps, documents), is_private=True)
    return open_dataset(folder)
