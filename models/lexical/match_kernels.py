"""Which labels' names occur in texts, and how: the compiled loops of `models.lexical.matcher`.

A label is touched if the text has a key word of one of its names: one of its rarest words, without
all of which less of the name is left than a match needs. So the common words of names cost nothing,
and only labels that share enough are looked at word by word.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np
from jaxtyping import Float32, Int32, Int64

from longtail.models.jit import compiled
from longtail.models.lexical.place_kernels import (
    count_phrases,
    in_sentences,
    is_repeat,
    mark_phrases,
    shared_idf,
)

NameIndex = namedtuple(
    "NameIndex",
    (
        "starts", "words", "labels", "is_preferred", "weights", "num_alike", "starts_of_labels",
        "relatives", "starts_of_relatives", "idf", "pair_keys", "pair_idf", "key_starts",
        "key_labels", "vector_starts", "vector_features", "vector_weights",
    ),
)  # fmt: skip
"""The arrays that texts are compared with: those of `LabelTerms`; the idf of words and of pairs of
words; the labels of which each word is a key word; and the unit vector of each label's names, over
the words and then the pairs."""

NUM_SEEN = 16
"""Features of a match that the text alone tells; see `longtail.models.lexical.matcher.FEATURES`."""
PARTLY, IN_A_SENTENCE, AS_A_PHRASE = 0, 1, 2
"""How a name was found: some of its words; all of them in one sentence; or all of them in their
order, at a place that belongs to no longer name."""


def match_texts(
    texts: Int32[np.ndarray, piece],
    starts: Int64[np.ndarray, text_and_one],
    title_lengths: Int64[np.ndarray, text],
    index: NameIndex,
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
        index: The names.
        least_share: A label is matched if so much of the idf of one of its names is in the text;
        num_nearest: or if it is among so many labels of the largest cosine, of those of which the
            text has a key word.

    Returns:
        Where the matches of each text begin; and of each match the label, its best term, how that
        was found, and its features.
    """
    return _match_texts(texts, starts, title_lengths, index, least_share, num_nearest)  # type: ignore[no-any-return]


@compiled
def _match_texts(texts, starts, title_lengths, index, least_share, num_nearest):
    num_texts = len(starts) - 1
    match_starts = np.zeros(num_texts + 1, dtype=np.int64)
    labels = np.empty(64, dtype=np.int64)
    terms = np.empty(64, dtype=np.int64)
    kinds = np.empty(64, dtype=np.int64)
    features = np.empty((64, NUM_SEEN), dtype=np.float32)
    counts = np.zeros(len(index.idf), dtype=np.int32)
    dots = np.zeros(len(index.starts_of_labels) - 1, dtype=np.float32)
    vector = np.zeros(len(index.idf) + len(index.pair_idf), dtype=np.float32)
    size = 0
    for text in range(num_texts):
        pieces = texts[starts[text] : starts[text + 1]]
        found, occurrences = _occurrences(pieces, counts)
        touched = _touch(pieces, found, counts, index, vector, dots)
        chosen = _chosen(touched, dots, counts, index, least_share, num_nearest)
        while size + len(chosen) > len(labels):
            labels, terms, kinds = _grown(labels), _grown(terms), _grown(kinds)
            more = np.empty((2 * len(features), NUM_SEEN), dtype=np.float32)
            more[: len(features)] = features
            features = more
        stop = size + len(chosen)
        _describe(
            pieces, title_lengths[text], chosen, occurrences, counts, dots, index,
            labels[size:stop], terms[size:stop], kinds[size:stop], features[size:stop],
        )  # fmt: skip
        size = stop
        match_starts[text + 1] = size
        for label in touched:
            dots[label] = 0
        for word in found:
            counts[word] = 0
    return match_starts, labels[:size], terms[:size], kinds[:size], features[:size]


@compiled
def _grown(values):
    more = np.empty(2 * len(values), dtype=np.int64)
    more[: len(values)] = values
    return more


@compiled
def _occurrences(pieces, counts):
    """Count the known words of a text; return them, rising, and where each occurs.

    The second is a matrix of a row for each place: number of the word, place, sentence; rising.
    """
    num_known = 0
    for piece in pieces:
        if piece >= 0:
            counts[piece] += 1
            num_known += 1
    places = np.empty((num_known, 3), dtype=np.int64)
    at = sentence = 0
    for place in range(len(pieces)):
        if pieces[place] >= 0:
            places[at, 0], places[at, 1], places[at, 2] = pieces[place], place, sentence
            at += 1
        elif pieces[place] == -2:
            sentence += 1
    places = places[np.argsort(places[:, 0], kind="mergesort")]  # stable: places still rise
    num_found = 0
    found = np.empty(num_known, dtype=np.int64)
    for at in range(num_known):
        if at == 0 or places[at, 0] != places[at - 1, 0]:
            found[num_found] = places[at, 0]
            num_found += 1
    return found[:num_found], places


@compiled
def _found_pairs(pieces, index):
    """Return the pairs of words of names that stand side by side in a text, and how often."""
    places = np.empty(len(pieces), dtype=np.int64)
    size = 0
    for place in range(len(pieces) - 1):
        key = (np.int64(pieces[place]) << 32) | np.int64(pieces[place + 1])
        number = np.searchsorted(index.pair_keys, key)
        is_pair = pieces[place] >= 0 and pieces[place + 1] >= 0 and number < len(index.pair_keys)
        if is_pair and index.pair_keys[number] == key:
            places[size] = number
            size += 1
    places = np.sort(places[:size])
    times = np.zeros(len(places), dtype=np.int64)
    num_pairs = 0
    for at in range(size):
        if at == 0 or places[at] != places[at - 1]:
            places[num_pairs] = places[at]
            num_pairs += 1
        times[num_pairs - 1] += 1
    return places[:num_pairs], times[:num_pairs]


@compiled
def _weights(found, times, idf):
    """Return (1 + ln tf) idf of words or pairs."""
    weights = np.empty(len(found), dtype=np.float64)
    for i in range(len(found)):
        weights[i] = (1 + np.log(times[i])) * idf[found[i]]
    return weights


@compiled
def _touch(pieces, found, counts, index, vector, dots):
    """Write the cosines of the text with all labels of which it has a key word; return these.

    The text's unit vector is written for that, and wiped off again.
    """
    pairs, times = _found_pairs(pieces, index)
    weights = _weights(found, counts[found], index.idf)
    pair_weights = _weights(pairs, times, index.pair_idf)
    scale = 1 / np.sqrt(max(1e-12, (weights**2).sum() + (pair_weights**2).sum()))
    vector[found] = weights * scale
    vector[len(index.idf) + pairs] = pair_weights * scale
    touched = np.empty(64, dtype=np.int64)
    size = 0
    for word in found:
        for entry in range(index.key_starts[word], index.key_starts[word + 1]):
            label = index.key_labels[entry]
            if dots[label] == 0:
                if size == len(touched):
                    touched = _grown(touched)
                touched[size] = label
                size += 1
                dots[label] = _cosine(label, vector, index)
    vector[found] = 0
    vector[len(index.idf) + pairs] = 0
    return touched[:size]


@compiled
def _cosine(label, vector, index):
    total = np.float32(0)
    for at in range(index.vector_starts[label], index.vector_starts[label + 1]):
        total += vector[index.vector_features[at]] * index.vector_weights[at]
    return total


@compiled
def _chosen(touched, dots, counts, index, least_share, num_nearest):
    """Return the touched labels that are matched, rising."""
    least_dot = np.float32(0)
    if len(touched) > num_nearest:
        least_dot = -np.partition(-dots[touched], num_nearest - 1)[num_nearest - 1]
    chosen = np.empty(len(touched), dtype=np.int64)
    size = 0
    for label in touched:
        is_matched = dots[label] >= least_dot
        term = index.starts_of_labels[label]
        while not is_matched and term < index.starts_of_labels[label + 1]:
            is_matched = shared_idf(term, counts, index) >= least_share * index.weights[term]
            term += 1
        if is_matched:
            chosen[size] = label
            size += 1
    return np.sort(chosen[:size])


@compiled
def _describe(
    pieces, title_length, chosen, places, counts, dots, index, labels, terms, kinds, features
):
    """Write the best term of each matched label, and the features of the match."""
    longest = np.zeros(len(pieces), dtype=np.int64)  # words of the longest name at each place
    largest = np.float32(1e-9)
    for label in chosen:
        largest = max(largest, dots[label])
        for term in range(index.starts_of_labels[label], index.starts_of_labels[label + 1]):
            mark_phrases(pieces, places, term, counts, index, longest)
    in_title = np.zeros(len(index.idf), dtype=np.bool_)
    for piece in pieces[:title_length]:
        if piece >= 0:
            in_title[piece] = True
    for i in range(len(chosen)):
        label = chosen[i]
        labels[i] = label
        terms[i], kinds[i] = _describe_label(
            pieces, places, label, counts, index, longest, features[i]
        )
        _describe_term(terms[i], in_title, index, features[i])
        features[i, 12] = dots[label]
        features[i, 13] = dots[label] / largest
        features[i, 14] = np.log1p(len(pieces))
    for i in range(len(chosen)):
        features[i, 15] = _num_whole_relatives(chosen, chosen[i], kinds, index)


@compiled
def _describe_label(pieces, places, label, counts, index, longest, features):
    """Write the features of a match that its places decide; return its best term and the kind."""
    best, best_term, best_kind, num_phrases, num_free = -1.0, 0, 0, 0, 0
    for term in range(index.starts_of_labels[label], index.starts_of_labels[label + 1]):
        own_phrases, own_free = count_phrases(pieces, places, term, counts, index, longest)
        num_phrases += own_phrases
        num_free += own_free
        share, num_whole, first, last = in_sentences(places, term, counts, index)
        shared = shared_idf(term, counts, index) / index.weights[term]
        kind = AS_A_PHRASE if own_free else IN_A_SENTENCE if num_whole else PARTLY
        # The kind decides, then the share in a sentence, then that anywhere; ties: the first.
        value = 4 * kind + 2 * share + shared
        if value > best:
            best, best_term, best_kind = value, term, kind
            features[0], features[1] = shared, share
            features[3] = np.log1p(num_whole)
            features[4] = (first + 1) / (len(pieces) + 1)
            features[5] = (last + 1) / (len(pieces) + 1)
    features[2] = np.log1p(num_free)
    features[11] = num_free / num_phrases if num_phrases else 1
    return best_term, best_kind


@compiled
def _describe_term(term, in_title, index, features):
    """Write the features of a match that its term and the title decide."""
    total = 0.0
    for at in range(index.starts[term], index.starts[term + 1]):
        if in_title[index.words[at]] and not is_repeat(index, term, at):
            total += index.idf[index.words[at]]
    features[6] = total / index.weights[term]
    features[7] = index.is_preferred[term]
    features[8] = index.starts[term + 1] - index.starts[term]
    features[9] = index.weights[term]
    features[10] = np.log1p(index.num_alike[term])


@compiled
def _num_whole_relatives(chosen, label, kinds, index):
    """Return how many broader and narrower labels are found with all words of a name."""
    count = 0
    for at in range(index.starts_of_relatives[label], index.starts_of_relatives[label + 1]):
        other = np.searchsorted(chosen, index.relatives[at])
        if other < len(chosen) and chosen[other] == index.relatives[at]:
            count += kinds[other] != PARTLY
    return count
