"""Baselines, which train nothing: nearest neighbours, and label names in the text.

A trained scorer has to beat them. Only positive scores are ranked; a row of a ranking ends in
padding where fewer than k labels have one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Float32
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from longtail.models.errors import DataError
from longtail.models.ranking.top_k import NO_LABEL, Ranking, top_of_scores

_DENSE_BYTES = 64 * 2**20
"""Most bytes of the dense scores of one chunk; ranking them takes a few times as much."""


class NoNameError(DataError):
    """No label's name has a word that could be matched."""


def nearest_neighbour_ranking(
    train_features: Float32[csr_array, "train feature"],
    train_labels: Float32[csr_array, "train label"],
    features: Float32[csr_array, "document feature"],
    k: int,
    num_neighbours: int = 30,
) -> Ranking:
    """Rank labels by the summed cosine of the nearest training documents that carry them.

    Only neighbours with a positive cosine vote, so a label that none of them carries is not ranked.

    Args:
        train_features: tf-idf of the training documents; rows of length 1.
        train_labels: Ones where a training document carries the label.
        features: tf-idf of the documents to rank for; rows of length 1.
        k: Number of labels per document.
        num_neighbours: Training documents that vote; of equally near ones those that come first.
    """
    if num_neighbours < 1:
        raise DataError(
            f"nearest neighbours: got num_neighbours={num_neighbours!r}, expected at least 1"
        )
    by_feature = csr_array(train_features.T)  # (feature, train)

    def score(start: int, stop: int) -> Float32[csr_array, "chunk label"]:
        neighbours = _top_of_sparse(features[start:stop] @ by_feature, num_neighbours)
        return _to_sparse(neighbours, train_labels.shape[0]) @ train_labels

    return _rank_in_chunks(score, features.shape[0], max(train_labels.shape), k)


def label_name_ranking(
    texts: Sequence[str], label_names: Sequence[str], k: int, background_texts: Iterable[str]
) -> Ranking:
    """Rank labels by the cosine between the tf-idf of the document and that of the label's name.

    Words and word pairs of the label names are matched, with sublinear term frequency. Document
    frequencies come from the background texts, not from the names: of the variants tried on the
    development split of EURLEX57K this was the best at P@5 (27.3 with 3,000 background texts, 25.8
    without word pairs, 23.4 with linear term frequency, 10.2 with frequencies from the names).

    Args:
        texts: The documents to rank for.
        label_names: A text for each label, in label order: its name, and its description if any.
        k: Number of labels per document.
        background_texts: Texts to count document frequencies in, usually the training documents;
            their labels are not used. A word that none of them holds weighs most.
    """
    try:
        # Letters that have no lower case, as bold ones of mathematics, are no mistake.
        lowered = {"lowercase": False, "preprocessor": str.lower}
        names_only = CountVectorizer(ngram_range=(1, 2), **lowered).fit(label_names)
        vectorizer = TfidfVectorizer(
            ngram_range=(1, 2),
            sublinear_tf=True,
            vocabulary=names_only.vocabulary_,
            dtype=np.float32,
            **lowered,
        ).fit(background_texts)
    except ValueError as error:
        raise NoNameError(
            f"label-name matching: {len(label_names)} label names and the background texts hold no "
            f"words to match ({error}); give names of words and at least one background text"
        ) from error
    by_feature = csr_array(vectorizer.transform(label_names).T)  # (feature, label)

    def score(start: int, stop: int) -> Float32[csr_array, "chunk label"]:
        return csr_array(vectorizer.transform(texts[start:stop])) @ by_feature

    return _rank_in_chunks(score, len(texts), len(label_names), k)


def _rank_in_chunks(
    score: Callable[[int, int], csr_array], num_documents: int, width: int, k: int
) -> Ranking:
    """Rank `score(start, stop)` of chunks of documents that are small enough to be made dense."""
    if k < 1:
        raise DataError(f"baseline: got k={k!r}, expected at least 1")
    size = max(1, _DENSE_BYTES // (4 * max(width, 1)))
    labels = np.full((num_documents, k), NO_LABEL, dtype=np.int64)
    scores = np.full((num_documents, k), -np.inf, dtype=np.float32)
    for start in range(0, num_documents, size):
        stop = min(start + size, num_documents)
        best = _top_of_sparse(score(start, stop), k)
        labels[start:stop], scores[start:stop] = best.labels, best.scores
    return Ranking(labels=labels, scores=scores)


def _top_of_sparse(scores: Float32[csr_array, "row label"], k: int) -> Ranking:
    # Columns without an entry can't be ranked; leaving them out keeps the order of the others.
    columns, compact = np.unique(scores.indices, return_inverse=True)
    dense = np.full((scores.shape[0], max(len(columns), 1)), -np.inf, dtype=np.float32)
    rows = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))
    is_positive = scores.data > 0
    dense[rows[is_positive], compact[is_positive]] = scores.data[is_positive]
    best = top_of_scores(dense, k)
    to_label = np.append(columns, NO_LABEL).astype(np.int64)  # the last one is where NO_LABEL looks
    return Ranking(labels=to_label[best.labels], scores=best.scores)


def _to_sparse(ranking: Ranking, num_labels: int) -> Float32[csr_array, "batch label"]:
    is_ranked = ranking.labels != NO_LABEL
    starts = np.concatenate([[0], np.cumsum(is_ranked.sum(axis=1))])
    shape = (len(ranking.labels), num_labels)
    return csr_array((ranking.scores[is_ranked], ranking.labels[is_ranked], starts), shape=shape)
