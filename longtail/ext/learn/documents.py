"""A corpus with feedback applied: corrected labels, and new training documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array, vstack

from longtail.ext.learn.verdicts import TextVerdicts, Verdicts
from longtail.models.bundle.trained_on import digests_of
from longtail.models.corpus.raw import RawDocument
from longtail.training.assessment.truth import in_order_of
from longtail.training.data.dataset import Dataset


@dataclass(frozen=True, slots=True)
class ChangedDocuments:
    """A corpus with feedback applied.

    Attributes:
        corpus: Over the labels of the model and new ones, with the new documents behind the others.
        num_new: Texts that became training documents.
        num_corrected: Documents of the corpus whose labels changed.
        num_known: Texts whose labels the corpus has as the verdicts say.
    """

    corpus: Dataset
    num_new: int
    num_corrected: int
    num_known: int


def change_documents(corpus: Dataset, verdicts: Verdicts) -> ChangedDocuments:
    """Correct the labels of training documents, and add texts that are none yet.

    A text is a training document if both are equal up to white space. A new document's labels
    without a verdict are absent, as in training.
    """
    catalogue = verdicts.catalogue
    truth = {
        name: in_order_of(catalogue, corpus, split.scan().labels)
        for name, split in corpus.splits.items()
    }
    texts = corpus.split("train").scan().texts
    order = np.argsort(texts, kind="stable")
    digests = digests_of(each.text for each in verdicts.texts)
    starts, stops = (
        np.searchsorted(texts[order], digests, side).tolist() for side in ("left", "right")
    )
    replaced: dict[int, frozenset[int]] = {}
    new, num_known = [], 0
    for text, start, stop in zip(verdicts.texts, starts, stops, strict=True):
        if start == stop:
            new.append(text)
            continue
        changed = _corrected(truth["train"], order[start:stop], text)
        replaced |= changed
        num_known += not changed
    truth["train"] = _with_rows(truth["train"], replaced, [each.right for each in new])
    documents = [RawDocument(0, each.document_id, each.text, ()) for each in new]
    splits = {
        name: split.changed(truth[name], documents if name == "train" else ())
        for name, split in corpus.splits.items()
    }
    view = corpus.with_splits(splits, catalogue)
    return ChangedDocuments(view, len(new), len(replaced), num_known)


def _corrected(
    labels: Float32[csr_array, "document label"], rows: Int64[np.ndarray, row], text: TextVerdicts
) -> dict[int, frozenset[int]]:
    """Return the labels of documents of one text that its verdicts change."""
    found = {}
    for row in rows.tolist():
        own = frozenset(labels.indices[slice(*labels.indptr[row : row + 2])].tolist())
        if (now := (own | text.right) - text.wrong) != own:
            found[row] = now
    return found


def _with_rows(
    labels: Float32[csr_array, "document label"],
    replaced: dict[int, frozenset[int]],
    new: Sequence[frozenset[int]],
) -> Float32[csr_array, "changed label"]:
    """Return the labels of documents with some replaced, and those of new ones below them."""
    order = np.arange(labels.shape[0] + len(new))
    order[list(replaced)] = labels.shape[0] + np.arange(len(replaced))
    order[labels.shape[0] :] += len(replaced)
    changed = _matrix_of([*replaced.values(), *new], labels.shape[1])
    found: csr_array = csr_array(vstack([labels, changed], format="csr")[order])
    return found


def _matrix_of(rows: Sequence[frozenset[int]], num_labels: int) -> Float32[csr_array, "row label"]:
    """Return a matrix with ones at the labels of each row."""
    indices = np.array([label for row in rows for label in sorted(row)], dtype=np.int32)
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    ones = np.ones(len(indices), dtype=np.float32)
    return csr_array((ones, indices, indptr), shape=(len(rows), num_labels))
