"""Matches of label names in texts, with the features that tell good ones from bad ones.

The features are those of Maui (Medelyan 2009, chapter 4) and of Annif's MLLM, in one pass over the
text, and with names of which only some words occur.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.lexical.match_kernels import (
    AS_A_CODE,
    NUM_SEEN,
    PARTLY,
    NameIndex,
    as_record,
    match_texts,
)
from longtail.models.lexical.terms import LabelTerms, rising
from longtail.models.lexical.words import NameWords, ReadText

FEATURES = (
    "share of the name's idf in the text", "share in one sentence", "log(1 + free phrases)",
    "log(1 + sentences with all words)", "first place", "last place", "share in the title",
    "own name", "words of the name", "idf of the name", "log(1 + labels of these words)",
    "share of places in no longer name", "cosine", "cosine / largest", "log(1 + words of the text)",
    "parents and children matched", "log-odds that the name was right", "log(1 + times found)",
)  # fmt: skip
"""The columns of a match. Places are shares of the text's length; the last two columns are of the
training documents in which the label's name was found in the same way."""
NUM_KINDS = 4
"""Ways in which a name is found (see `longtail.models.lexical.match_kernels`)."""
_LEAST_SHARE = 0.55
_NUM_NEAREST = 30
_KEYLESS_SHARE = 0.2
"""Largest share of a name's idf in words that are not looked up; at most `_LEAST_SHARE`, so that
a match always has another word."""
_ROUNDING = 1e-4
"""More than the sums of idf can be off, as a share."""
_PRIOR_WEIGHT = 10.0
"""Number of finds of a name that the prior over all names is worth."""
_PRIOR_FINDS = np.array([1.0, 1.0, 1.0, 10.0])
_PRIOR_RIGHT = np.array([0.5, 0.5, 0.5, 9.5])
"""What is known of each kind before any find: a code in a text is meant."""


@dataclass(frozen=True, slots=True)
class WordCounts:
    """In how many training documents the words and pairs of words of names occur.

    Attributes:
        words: In their compared form.
        documents: Number of documents with each word.
        pairs: Numbers of the words of each pair of neighbours: first * 2^32 + second, rising.
        pair_documents: Number of documents with each pair.
        num_documents: All training documents.
    """

    words: tuple[str, ...]
    documents: Int64[np.ndarray, word]
    pairs: Int64[np.ndarray, pair]
    pair_documents: Int64[np.ndarray, pair]
    num_documents: int

    def idf(self, documents: Int64[np.ndarray, _]) -> Float32[np.ndarray, _]:
        """Return ln((1 + N) / (1 + df)) + 1 of document frequencies."""
        found: Float32[np.ndarray, _] = (
            np.log((1 + self.num_documents) / (1 + documents)) + 1
        ).astype(np.float32)
        return found


@dataclass(frozen=True, slots=True)
class Matches:
    """The matches of some texts.

    Attributes:
        starts: Where those of each text begin, and where the last one's end.
        labels: Label of each match, rising within a text.
        terms: Its best term (see `LabelTerms`).
        kinds: How that was found.
        seen: What the text tells of the match: the first columns of `FEATURES`.
    """

    starts: Int64[np.ndarray, text_and_one]
    labels: Int64[np.ndarray, match]
    terms: Int64[np.ndarray, match]
    kinds: Int64[np.ndarray, match]
    seen: Float32[np.ndarray, "match seen"]

    @property
    def texts(self) -> Int64[np.ndarray, match]:
        """The number of the text of each match."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts)).astype(np.int64)


@dataclass(frozen=True)
class FindHistory:
    """How often names were found in training documents, and how often the label was right.

    Attributes:
        found: Documents in which a name of the label was found, by the way it was found.
        right: Those of them that carry the label.
    """

    found: Int64[np.ndarray, "label kind"]
    right: Int64[np.ndarray, "label kind"]

    @classmethod
    def none(cls, num_labels: int) -> FindHistory:
        """Return the history of no documents."""
        return cls(*(np.zeros((num_labels, NUM_KINDS), dtype=np.int64) for _ in range(2)))

    def plus(self, other: FindHistory, sign: int = 1) -> FindHistory:
        """Return the sum of both histories; with the sign -1, the difference."""
        return FindHistory(self.found + sign * other.found, self.right + sign * other.right)

    def features(
        self, labels: Int64[np.ndarray, match], kinds: Int64[np.ndarray, match]
    ) -> Float32[np.ndarray, "match 2"]:
        """Return the last two columns of `FEATURES`.

        The first is ln (r + 10 q) / (f - r + 10 (1 - q)), r and f being the label's numbers of
        right finds and of finds, and q the share of right ones among all finds of the kind.
        """
        found: Float32[np.ndarray, "match 2"] = self._features[labels, kinds]
        return found

    @cached_property
    def _features(self) -> Float32[np.ndarray, "label kind 2"]:
        """The features of a find of each kind, of every label."""
        found, right = self.found, self.right
        share = (right.sum(axis=0) + _PRIOR_RIGHT) / (found.sum(axis=0) + _PRIOR_FINDS)
        odds = (right + _PRIOR_WEIGHT * share) / (found - right + _PRIOR_WEIGHT * (1 - share))
        return np.stack([np.log(odds), np.log1p(found)], axis=-1).astype(np.float32)


class NameMatcher:
    """Finds the names of a catalogue's labels in texts."""

    def __init__(
        self,
        catalogue: LabelCatalogue,
        words: NameWords,
        counts: WordCounts,
        terms: LabelTerms | None = None,
    ) -> None:
        """Index the names.

        Args:
            catalogue: The labels.
            words: Words of their names, at least.
            counts: Counts of these words and of the pairs in the names.
            terms: The names as these words; None: they are read.
        """
        assert counts.words == words.words
        self.words = words
        self.terms = terms or LabelTerms.of(catalogue, words)
        self._index = as_record(_index_of(self.terms, counts, len(catalogue)))

    def match(self, texts: Sequence[str]) -> Matches:
        """Return the labels whose names occur in texts, in part at least."""
        return self.match_read([self.words.read_text(text) for text in texts])

    def match_read(self, texts: Sequence[ReadText]) -> Matches:
        """Return the labels whose names occur in texts that `words` has read."""
        read = [text.words for text in texts]
        starts = np.array([0, *accumulate(map(len, read))], dtype=np.int64)
        titles = np.array([text.title_length for text in texts], dtype=np.int64)
        pieces = np.concatenate([*read, np.empty(0, dtype=np.int32)])
        return Matches(
            *match_texts(pieces, starts, titles, self._index, _LEAST_SHARE, _NUM_NEAREST)
        )


def pairs_of(terms: LabelTerms) -> Int64[np.ndarray, pair]:
    """Return the pairs of neighbouring words in names, rising (see `WordCounts`)."""
    first, second = terms.words[:-1].astype(np.int64), terms.words[1:].astype(np.int64)
    is_end = np.zeros(len(terms.words) + 1, dtype=np.bool_)
    is_end[terms.starts] = True
    is_inside = ~is_end[1:-1]
    return np.unique((first << 32 | second)[is_inside]).astype(np.int64)


def expected_finds(
    terms: LabelTerms, counts: WordCounts, labels: Iterable[int], num_labels: int
) -> Int64[np.ndarray, "label kind"]:
    """Return in how many training documents some labels' names would be found, by kind.

    As if words occurred independently: N prod_w df_w / N over the words of a name; over the most
    frequent ones that have enough of its idf, where it is found in part.
    """
    found = np.zeros((num_labels, NUM_KINDS), dtype=np.int64)
    shares = counts.documents / max(counts.num_documents, 1)
    idf = counts.idf(counts.documents)
    for label in labels:
        for term in range(terms.starts_of_labels[label], terms.starts_of_labels[label + 1]):
            if terms.is_code[term]:
                continue
            words = np.unique(terms.words[terms.starts[term] : terms.starts[term + 1]])
            words = words[np.argsort(-shares[words], kind="stable")]
            together = np.rint(counts.num_documents * np.cumprod(shares[words])).astype(np.int64)
            heard = np.cumsum(idf[words])
            few = np.searchsorted(heard, _LEAST_SHARE * heard[-1])
            found[label, PARTLY] = max(found[label, PARTLY], together[few])
            found[label, PARTLY + 1 : AS_A_CODE] = np.maximum(
                found[label, PARTLY + 1 : AS_A_CODE], together[-1]
            )
    return found


def _index_of(terms: LabelTerms, counts: WordCounts, num_labels: int) -> NameIndex:
    idf, pair_idf = counts.idf(counts.documents), counts.idf(counts.pair_documents)
    vectors = _vectors(terms, idf, counts.pairs, pair_idf, num_labels)
    key_starts, key_labels = _key_words(terms, idf)
    return NameIndex(
        terms.starts, terms.words, terms.is_preferred, terms.is_code, terms.num_alike,
        terms.starts_of_labels, terms.relatives, terms.starts_of_relatives, terms.weights(idf),
        idf, counts.pairs, pair_idf, key_starts, key_labels,
        vectors.indptr.astype(np.int64), vectors.indices.astype(np.int64),
        vectors.data.astype(np.float32),
    )  # fmt: skip


def _key_words(
    terms: LabelTerms, idf: Float32[np.ndarray, word]
) -> tuple[Int64[np.ndarray, word_and_one], Int64[np.ndarray, entry]]:
    """Return the labels of each word that is a key word of one of their terms.

    The key words of a term are its rarest ones, until the others together have less than
    `_KEYLESS_SHARE` of its idf.

    Returns:
        Where those of each word begin, and where the last one's end; and they, rising.
    """
    of_terms, words = terms.different_words
    order = np.lexsort((words, -idf[words], of_terms))  # by term, the rarest word first
    of_terms, words = of_terms[order], words[order]
    weights = idf[words].astype(np.float64)
    before = np.cumsum(weights) - weights
    begins = np.searchsorted(of_terms, np.arange(len(terms.names)))
    totals = np.bincount(of_terms, weights, minlength=len(terms.names))
    rarer = (before - before[begins[of_terms]]) / totals[of_terms]
    is_key = rarer <= 1 - _KEYLESS_SHARE + _ROUNDING
    keys = rising(words[is_key] << 32 | terms.labels[of_terms[is_key]])
    starts = np.searchsorted(keys >> 32, np.arange(len(idf) + 1)).astype(np.int64)
    return starts, keys & 0xFFFFFFFF


def _vectors(
    terms: LabelTerms,
    idf: Float32[np.ndarray, word],
    pairs: Int64[np.ndarray, pair],
    pair_idf: Float32[np.ndarray, pair],
    num_labels: int,
) -> csr_array:
    """Return the idf of the words and pairs of all names of each label, at unit length."""
    sizes = np.diff(terms.starts)
    # Codes are left out: they would make all names of a label less like a text that has none.
    label_of_word, is_word = np.repeat(terms.labels, sizes), ~np.repeat(terms.is_code, sizes)
    keys = terms.words[:-1].astype(np.int64) << 32 | terms.words[1:].astype(np.int64)
    term_of_word = np.repeat(np.arange(len(sizes)), sizes)
    is_pair = term_of_word[:-1] == term_of_word[1:]
    if not np.isin(keys[is_pair], pairs).all():
        raise ValueError("names: pairs of words that were not counted")
    found = np.searchsorted(pairs, keys[is_pair])
    rows = np.concatenate([label_of_word[is_word], label_of_word[:-1][is_pair]])
    columns = np.concatenate([terms.words[is_word], len(idf) + found])
    shape = (num_labels, len(idf) + len(pairs))
    vectors = csr_array((np.ones(len(rows), dtype=np.float32), (rows, columns)), shape=shape)
    vectors.sum_duplicates()
    vectors.data = np.concatenate([idf, pair_idf])[vectors.indices]
    norms = np.sqrt(vectors.multiply(vectors).sum(axis=1))
    scale = np.divide(1, norms, where=norms > 0, out=np.zeros_like(norms))
    vectors.data *= np.repeat(scale, np.diff(vectors.indptr)).astype(np.float32)
    return vectors


assert len(FEATURES) == NUM_SEEN + 2
