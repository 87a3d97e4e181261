"""In how many documents the words of label names occur."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Int64

from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.lexical.matcher import WordCounts, pairs_of
from longtail.models.lexical.terms import LabelTerms, names_of
from longtail.models.lexical.words import NameWords, ReadText


def words_of(
    catalogue: LabelCatalogue, languages: Sequence[str] = (), *, removes_markup: bool = False
) -> NameWords:
    """Return the words of all names of labels."""
    names = (name for label in catalogue for name in names_of(label))
    return NameWords.of_names(names, languages, removes_markup=removes_markup)


def count_words(
    texts: Iterable[ReadText],
    catalogue: LabelCatalogue,
    words: NameWords,
    terms: LabelTerms | None = None,
) -> WordCounts:
    """Count the documents of the words, and of the pairs of words, that names have.

    Args:
        texts: Training documents, as the words read them.
        catalogue: The labels.
        words: Of their names.
        terms: The names as these words; None: they are read.
    """
    return counts_of(texts, words, pairs_of(terms or LabelTerms.of(catalogue, words)))


def counts_of(
    texts: Iterable[ReadText], words: NameWords, pairs: Int64[np.ndarray, pair]
) -> WordCounts:
    """Count the documents of words and of pairs of them (see `WordCounts`)."""
    documents = np.zeros(len(words), dtype=np.int64)
    pair_documents = np.zeros(len(pairs), dtype=np.int64)
    num_documents = 0
    for text in texts:
        read = text.words.astype(np.int64)
        num_documents += 1
        documents[np.unique(read[read >= 0])] += 1
        pair_documents[_found_pairs(read, pairs)] += 1
    return WordCounts(words.words, documents, pairs, pair_documents, num_documents)


def _found_pairs(
    read: Int64[np.ndarray, piece], pairs: Int64[np.ndarray, pair]
) -> Int64[np.ndarray, found]:
    """Return the numbers of the pairs that occur in a text, each once."""
    if not len(pairs) or len(read) < 2:
        return np.empty(0, dtype=np.int64)
    is_pair = (read[:-1] >= 0) & (read[1:] >= 0)
    keys = np.unique((read[:-1] << 32 | read[1:])[is_pair])
    at = np.minimum(np.searchsorted(pairs, keys), len(pairs) - 1)
    found: Int64[np.ndarray, found] = at[pairs[at] == keys]
    return found
