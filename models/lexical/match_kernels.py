"""Which labels' names occur in texts, and how: calls of `match.c`.

A label is touched if the text has a key word of one of its names: one of its rarest words, without
all of which less of the name is left than a match needs. So the common words of names cost nothing,
and only labels that share enough are looked at word by word.
"""

from __future__ import annotations

from ctypes import Structure
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64

from longtail.models.native.library import (
    BOOL,
    F32,
    FLOAT,
    GROWN,
    I32,
    I64,
    INT,
    Grown,
    RecordOf,
    function,
    taken,
)


class NameIndex(NamedTuple):
    """The arrays that texts are compared with.

    Attributes:
        starts: This and those up to `starts_of_relatives` are those of `LabelTerms`.
        weights: Summed idf of each term's different words.
        idf: Idf of each word.
        pair_keys: The pairs of words (see `WordCounts`).
        pair_idf: Idf of each pair.
        key_starts: Where the labels of each word begin, and where the last one's end.
        key_labels: Those of which a word is a key word.
        vector_starts: Where the entries of each label's unit vector begin, and the last one's end.
        vector_features: Words, and behind them pairs.
        vector_weights: Weight of each entry.
    """

    starts: Int64[np.ndarray, term_and_one]
    words: Int32[np.ndarray, word]
    is_preferred: Bool[np.ndarray, term]
    is_code: Bool[np.ndarray, term]
    num_alike: Int64[np.ndarray, term]
    starts_of_labels: Int64[np.ndarray, label_and_one]
    relatives: Int64[np.ndarray, relative]
    starts_of_relatives: Int64[np.ndarray, label_and_one]
    weights: Float32[np.ndarray, term]
    idf: Float32[np.ndarray, word_of_names]
    pair_keys: Int64[np.ndarray, pair]
    pair_idf: Float32[np.ndarray, pair]
    key_starts: Int64[np.ndarray, word_and_one]
    key_labels: Int64[np.ndarray, key]
    vector_starts: Int64[np.ndarray, label_and_one]
    vector_features: Int64[np.ndarray, entry]
    vector_weights: Float32[np.ndarray, entry]

    @property
    def num_words(self) -> int:
        """Words of all names."""
        return len(self.idf)

    @property
    def num_pairs(self) -> int:
        """Pairs of words of all names."""
        return len(self.pair_keys)

    @property
    def num_labels(self) -> int:
        """Labels of the catalogue."""
        return len(self.starts_of_labels) - 1


as_record = RecordOf(
    "name_index", starts=I64["term+1"], words=I32["word"], is_preferred=BOOL["term"],
    is_code=BOOL["term"], num_alike=I64["term"], starts_of_labels=I64["num_labels+1"],
    relatives=I64["relative"], starts_of_relatives=I64["num_labels+1"], weights=F32["term"],
    idf=F32["num_words"], pair_keys=I64["num_pairs"], pair_idf=F32["num_pairs"],
    key_starts=I64["num_words+1"], key_labels=I64["key"], vector_starts=I64["num_labels+1"],
    vector_features=I64["entry"], vector_weights=F32["entry"], num_words=INT, num_pairs=INT,
    num_labels=INT,
)  # fmt: skip
"""Makes of an index what `match_texts` takes; done once, for all texts."""
_match_texts = function(
    "match_texts", pieces=I32["piece"], starts=I64["num_texts+1"], num_texts=INT,
    title_lengths=I64["num_texts"], index=as_record, least_share=FLOAT, num_nearest=INT,
    match_starts=I64.out["num_texts+1"], found=GROWN,
)  # fmt: skip

NUM_SEEN = 16
"""Features of a match that the text alone tells; see `longtail.models.lexical.matcher.FEATURES`."""
PARTLY, IN_A_SENTENCE, AS_A_PHRASE, AS_A_CODE = 0, 1, 2, 3
"""How a name was found: some of its words; all of them in one sentence; all of them in their
order, at a place that belongs to no longer name; or so, and it is a code."""
_COLUMNS = (Grown(np.int64), Grown(np.int64), Grown(np.int64), Grown(np.float32, NUM_SEEN))


def match_texts(
    texts: Int32[np.ndarray, piece],
    starts: Int64[np.ndarray, text_and_one],
    title_lengths: Int64[np.ndarray, text],
    index: Structure,
    least_share: float,
    num_nearest: int,
) -> tuple[
    Int64[np.ndarray, text_and_one],
    Int64[np.ndarray, match],
    Int64[np.ndarray, match],
    Int64[np.ndarray, match],
    Float32[np.ndarray, "match seen"],
]:
    """Return the labels whose names occur in texts, rising within each text.

    Args:
        texts: Numbers of the words of all texts, one after the other.
        starts: Where each text begins, and where the last one ends.
        title_lengths: Words and signs at the beginning of each text that are its title.
        index: The names, by `as_record`.
        least_share: A label is matched if this share of the idf of one of its names is in the
            text;
        num_nearest: or if it is among this number of labels (at least 1) of the largest cosine
            that have a key word in the text.

    Returns:
        Where the matches of each text begin; and of each match the label, its best term, how that
        was found, and its features.
    """
    match_starts = np.empty(len(starts), dtype=np.int64)
    found = np.empty((len(_COLUMNS), 2), dtype=np.int64)
    _match_texts(
        texts, starts, len(starts) - 1, title_lengths, index, least_share, num_nearest,
        match_starts, found,
    )  # fmt: skip
    labels, terms, kinds, seen = taken(found, _COLUMNS)
    return match_starts, labels, terms, kinds, seen
