"""The training documents of a model before and after feedback: their features and labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int64
from scipy.sparse import csr_array, vstack

from longtail.models.errors import DataError
from longtail.models.parts.model_parts import ModelParts
from longtail.models.scorers.tfidf import TfidfModel, terms_of
from longtail.training.assessment.truth import in_order_of
from longtail.training.configuration.sections import SparseConfig
from longtail.training.data.dataset import Dataset
from longtail.training.formats.hashed_parts import part_of
from longtail.training.updating.labels import SaidOfText

LEAST_DOCUMENTS = 10
"""Training documents of every label of a document that joins the dev split: documents of rarer
labels are worth more as examples."""
_ROUNDING = 2e-3
"""More than features differ, as a share, that were rounded to half precision."""


@dataclass(frozen=True, slots=True)
class TrainingDocuments:
    """What the sparse classifiers are fitted on.

    Attributes:
        features: Tf-idf of each document.
        labels: Ones where it carries a label.
    """

    features: Float32[csr_array, "document feature"]
    labels: Float32[csr_array, "document label"]

    @classmethod
    def of(cls, parts: ModelParts, corpus: Dataset | None) -> TrainingDocuments:
        """Return those that a model remembers; of one that remembers none, those of its corpus.

        A model remembers the documents that carry a label, with features in half precision.

        Raises:
            DataError: The model remembers none, and there is no corpus.
        """
        if (memory := parts.neighbours) is not None:
            return cls(memory.documents, memory.labels)
        if corpus is None:
            raise DataError(
                "the model keeps no training documents (it has no scorer 'neighbours'), and no "
                "corpus is given; name the folder of the corpus that it was trained on"
            )
        split = corpus.split("train")
        labels = in_order_of(parts.catalogue, corpus, split.scan().labels)
        return cls(parts.sparse.tfidf.transform(split.texts()), labels)

    def with_labels(self, num_labels: int) -> TrainingDocuments:
        """Return the same documents among more labels."""
        rows = (self.labels.data, self.labels.indices, self.labels.indptr)
        shape = (self.labels.shape[0], num_labels)
        return TrainingDocuments(self.features, csr_array(rows, shape=shape))

    @property
    def counts(self) -> Int64[np.ndarray, label]:
        """Documents of each label."""
        found = np.bincount(self.labels.indices, minlength=self.labels.shape[1])
        return found.astype(np.int64)

    def rows_of(self, features: Float32[csr_array, "text feature"]) -> list[Int64[np.ndarray, _]]:
        """Return the documents that have the same features as each text: the same words as often.

        A text without a known word is no document.
        """
        wanted = [_columns(features, row) for row in range(features.shape[0])]
        rows_of: dict[bytes, list[int]] = {each: [] for each in wanted if each}
        is_possible = np.isin(np.diff(self.features.indptr), np.diff(features.indptr))
        for document in np.flatnonzero(is_possible).tolist():
            rows_of.get(_columns(self.features, document), []).append(document)
        found = []
        for row, columns in enumerate(wanted):
            same = [x for x in rows_of.get(columns, []) if self._is(x, features, row)]
            found.append(np.array(same, dtype=np.int64))
        return found

    def _is(self, document: int, features: Float32[csr_array, "text feature"], row: int) -> bool:
        own = self.features.data[slice(*self.features.indptr[document : document + 2])]
        other = features.data[slice(*features.indptr[row : row + 2])]
        return bool(np.allclose(own, other, rtol=_ROUNDING, atol=0))


def _columns(matrix: Float32[csr_array, "row column"], row: int) -> bytes:
    """Return the columns of a row, which rise, as bytes."""
    found: bytes = matrix.indices[slice(*matrix.indptr[row : row + 2])].astype(np.int64).tobytes()
    return found


@dataclass(frozen=True, slots=True)
class ChangedDocuments:
    """What feedback changes of the training documents.

    Attributes:
        before: The documents that there were, among all labels, new ones too.
        after: The same with corrected labels, then the new ones.
        corrected: Those of them whose labels changed.
        texts: Of which something changed: first those of new documents, in the order of these.
        labels_before: The labels that the model knew of each of these; none of new ones.
        labels_after: Those that they have now.
        num_new: New documents.
        dev: Texts that join the dev split.
        num_known: Texts whose labels were known as they were said to be.
        touched: Labels whose documents changed, or that were rejected for new ones, rising.
    """

    before: TrainingDocuments
    after: TrainingDocuments
    corrected: Int64[np.ndarray, corrected]
    texts: list[SaidOfText]
    labels_before: Float32[csr_array, "text label"]
    labels_after: Float32[csr_array, "text label"]
    num_new: int
    dev: list[SaidOfText]
    num_known: int
    touched: Int64[np.ndarray, touched]

    @property
    def counts(self) -> Int64[np.ndarray, label]:
        """Documents of each label now."""
        return self.after.counts

    def unknown_share(self, tfidf: TfidfModel, config: SparseConfig) -> float:
        """Return the share of words that a vocabulary lacks, of those of a vocabulary of new texts.

        0 where there are none.

        Args:
            tfidf: Of the model.
            config: In how many documents a word is to occur, and in which share of them at most.
        """
        texts = [said.text for said in self.texts[: self.num_new]]
        counts = Counter(
            word
            for text in texts
            for word in set(terms_of(tfidf.cleaned(text), tfidf.lemmas, 1, tfidf.analyzer))
        )
        most = config.max_document_share * len(texts)
        words = [word for word, x in counts.items() if config.min_document_count <= x <= most]
        known = set(tfidf.tokens)
        return sum(word not in known for word in words) / max(1, len(words))


def change_documents(
    documents: TrainingDocuments,
    texts: Sequence[SaidOfText],
    features: Float32[csr_array, "text feature"],
    *,
    has_dev: bool,
) -> ChangedDocuments:
    """Correct the labels of training documents, and add those that are none yet.

    A new document's labels that nobody named are absent, as in training. It joins the dev split if
    the hash of its text says so, and every label of it had `LEAST_DOCUMENTS` before.

    Args:
        documents: Those of the model, among all labels.
        texts: What was said of each.
        features: Of the texts.
        has_dev: Whether there is a dev split to join.
    """
    found = documents.rows_of(features)
    is_frequent = documents.counts >= LEAST_DOCUMENTS
    is_known = np.array([len(rows) > 0 for rows in found], dtype=np.bool_)
    is_dev = np.array(
        [has_dev and _is_for_dev(text, is_frequent) for text in texts], dtype=np.bool_
    )
    is_dev &= ~is_known
    before = [_labels_of(documents.labels, rows) for rows in found]
    after = [(labels | said.right) - said.wrong for labels, said in zip(before, texts, strict=True)]
    is_new = ~is_known & ~is_dev
    is_corrected = is_known & np.array([a != b for a, b in zip(before, after, strict=True)])
    order = [*np.flatnonzero(is_new).tolist(), *np.flatnonzero(is_corrected).tolist()]
    touched: set[int] = set()
    for row in order:
        touched |= before[row] ^ after[row]
        touched |= texts[row].wrong if is_new[row] else set()
    num_labels = documents.labels.shape[1]
    new = np.flatnonzero(is_new)
    replaced = {
        document: after[row]
        for row in np.flatnonzero(is_corrected).tolist()
        for document in found[row].tolist()
    }
    return ChangedDocuments(
        before=documents,
        after=TrainingDocuments(
            csr_array(vstack([documents.features, features[new]], format="csr")),
            _with_rows(documents.labels, replaced, [after[row] for row in new.tolist()]),
        ),
        corrected=np.array(sorted(replaced), dtype=np.int64),
        texts=[texts[row] for row in order],
        labels_before=_matrix([before[row] for row in order], num_labels),
        labels_after=_matrix([after[row] for row in order], num_labels),
        num_new=len(new),
        dev=[text for text, is_in in zip(texts, is_dev, strict=True) if is_in],
        num_known=int(np.count_nonzero(is_known & ~is_corrected)),
        touched=np.array(sorted(touched), dtype=np.int64),
    )


def _is_for_dev(text: SaidOfText, is_frequent: Bool[np.ndarray, label]) -> bool:
    labels = list(text.right)
    return bool(labels) and bool(is_frequent[labels].all()) and part_of(text.text) == "dev"


def _labels_of(
    labels: Float32[csr_array, "document label"], rows: Int64[np.ndarray, _]
) -> frozenset[int]:
    """Return the labels of the first of some documents, which have one text."""
    if not len(rows):
        return frozenset()
    begin, end = labels.indptr[rows[0] : rows[0] + 2]
    return frozenset(labels.indices[begin:end].tolist())


def _matrix(rows: Sequence[frozenset[int]], num_labels: int) -> Float32[csr_array, "row label"]:
    indices = np.array([label for row in rows for label in sorted(row)], dtype=np.int32)
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    ones = np.ones(len(indices), dtype=np.float32)
    return csr_array((ones, indices, indptr), shape=(len(rows), num_labels))


def _with_rows(
    labels: Float32[csr_array, "document label"],
    replaced: dict[int, frozenset[int]],
    new: Sequence[frozenset[int]],
) -> Float32[csr_array, "changed label"]:
    """Return the labels of documents, those of some replaced, and of new ones below them."""
    order = np.arange(labels.shape[0] + len(new))
    for place, document in enumerate(replaced):
        order[document] = labels.shape[0] + place
    order[labels.shape[0] :] += len(replaced)
    changed = _matrix([*replaced.values(), *new], labels.shape[1])
    found: csr_array = csr_array(vstack([labels, changed], format="csr")[order])
    return found
