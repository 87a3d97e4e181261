"""The scorer of names learns: names of new labels, and how often names are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from scipy.sparse import csr_array

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.lexical.matcher import FindHistory, NameMatcher
from longtail.models.lexical.name_model import NameModel
from longtail.models.lexical.words import compared_form
from longtail.models.scorers.tfidf import TfidfModel
from longtail.training.data.chunks import chunks
from longtail.training.data.dataset import Dataset, Document
from longtail.training.lexical.word_counts import count_words
from longtail.training.updating.documents import ChangedDocuments

_MOST_SAMPLED = 4_000
"""Old documents in which names of new labels are looked for."""


@dataclass(frozen=True, slots=True)
class SampledTexts:
    """Some of the training documents.

    Attributes:
        texts: Of them.
        stands_for: How many documents each stands for.
    """

    texts: Sequence[str] = ()
    stands_for: int = 1

    @classmethod
    def of(cls, corpus: Dataset | None, changed: ChangedDocuments) -> SampledTexts:
        """Return every n-th training document of a corpus that feedback does not change.

        Args:
            corpus: Without one, there are none.
            changed: The documents.
        """
        if corpus is None:
            return cls()
        step = -(-changed.before.labels.shape[0] // _MOST_SAMPLED)
        said = {text.text for text in changed.texts}
        # One pass; lines that can't be used were told of when the model was trained.
        documents = (x for x in corpus.split("train").lines() if isinstance(x, Document))
        texts = (document.text for row, document in enumerate(documents) if row % step == 0)
        return cls([text for text in texts if text not in said], step)


def update_names(
    model: NameModel,
    changed: ChangedDocuments,
    new: list[Label],
    tfidf: TfidfModel,
    corpus: Dataset | None,
) -> NameModel:
    """Add the new labels, and count in which changed documents names were found and were right.

    The trees, and in how many documents words of known names occur, stay as they were trained.

    Args:
        model: Of the model before.
        changed: The documents.
        new: Labels that come after those of the model.
        tfidf: Tells in how many documents words occur.
        corpus: Of the model; names of new labels are looked for in its documents, too. None: then
            they are believed to be right as often as in the new documents.
    """
    updated = _with_new_words(model, model.with_labels(new), changed, tfidf) if new else model
    history, first = updated.history, 0
    found, right = history.found.copy(), history.right.copy()
    is_new = np.arange(len(changed.texts)) < changed.num_new
    for batch in chunks([text.text for text in changed.texts]):
        matches = updated.matcher.match(batch)
        rows = first + matches.texts
        at = (matches.labels, matches.kinds)
        np.add.at(found, at, is_new[rows])
        for labels, sign in ((changed.labels_before, -1), (changed.labels_after, 1)):
            np.add.at(right, at, sign * _is_in(labels, rows, matches.labels))
        first += len(batch)
    if new:
        found[-len(new) :] += _old_finds(updated, new, SampledTexts.of(corpus, changed))
    # What is found of a name depends on the other names too, some of which are new.
    return replace(updated, history=FindHistory(found, np.clip(right, 0, found)))


def _old_finds(
    model: NameModel, new: list[Label], old: SampledTexts
) -> Int64[np.ndarray, "new kind"]:
    """Return in how many documents that there were names of new labels are found: as of no label.

    Feedback alone shows hardly a document in which such a name is found and wrong.
    """
    matcher = NameMatcher(LabelCatalogue(new), model.matcher.words, model.counts)
    found: Int64[np.ndarray, "new kind"] = FindHistory.none(len(new)).found
    for batch in chunks(old.texts):
        matches = matcher.match(batch)
        np.add.at(found, (matches.labels, matches.kinds), old.stands_for)
    return found


def _with_new_words(
    before: NameModel, model: NameModel, changed: ChangedDocuments, tfidf: TfidfModel
) -> NameModel:
    """Return a model with the numbers of documents of words that no name had before.

    Of a word of the vocabulary its idf tells the number; others are counted in the new documents,
    as are pairs of words.
    """
    counts, most = model.counts, model.counts.num_documents
    texts = [text.text for text in changed.texts[: changed.num_new]]
    counted = count_words(texts, model.catalogue, model.matcher.words)
    numbers = {word: number for number, word in enumerate(counts.words)}
    known = np.zeros(len(counts.words))
    for token, documents in zip(tfidf.tokens, _document_counts(tfidf, most), strict=True):
        if (number := numbers.get(compared_form(token, model.lemmas))) is not None:
            known[number] += documents
    documents = np.minimum(known.round().astype(np.int64) + counted.documents, most)
    documents[: len(before.counts.words)] = counts.documents[: len(before.counts.words)]
    # Names of retired labels are counted no more, but their pairs keep their places.
    places = np.searchsorted(counts.pairs, counted.pairs)
    is_new_pair = ~np.isin(counted.pairs, before.counts.pairs)
    pair_documents = counts.pair_documents.copy()
    pair_documents[places[is_new_pair]] = np.minimum(counted.pair_documents[is_new_pair], most)
    return replace(
        model, counts=replace(counts, documents=documents, pair_documents=pair_documents)
    )


def _document_counts(tfidf: TfidfModel, num_documents: int) -> Float64[np.ndarray, feature]:
    """Return in how many documents tokens occur: idf = ln((1 + N) / (1 + df)) + 1, df wanted."""
    idf = tfidf.idf.astype(np.float64)
    counts: Float64[np.ndarray, feature] = np.maximum((1 + num_documents) / np.exp(idf - 1) - 1, 0)
    return counts


def _is_in(
    labels: Float32[csr_array, "text label"],
    rows: Int64[np.ndarray, match],
    columns: Int64[np.ndarray, match],
) -> Bool[np.ndarray, match]:
    num_labels = labels.shape[1]
    texts = np.repeat(np.arange(labels.shape[0], dtype=np.int64), np.diff(labels.indptr))
    return np.isin(rows * num_labels + columns, texts * num_labels + labels.indices)
