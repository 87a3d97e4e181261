"""Where the words of a name stand in a text: the compiled parts of `match_kernels`.

`places` is a matrix of a row for each known word of the text: number of the word, place, sentence;
rising. `counts` is how often each word of the names is in the text.
"""

from __future__ import annotations

import numpy as np

from longtail.models.jit import compiled


@compiled
def shared_idf(term, counts, index):
    """Return the idf of the different words of a term that are in the text."""
    total = 0.0
    for at in range(index.starts[term], index.starts[term + 1]):
        if counts[index.words[at]] and not is_repeat(index, term, at):
            total += index.idf[index.words[at]]
    return total


@compiled
def is_repeat(index, term, at):
    """Return whether a word of a term is one of those before it."""
    count = 0
    for earlier in range(index.starts[term], at):
        count += index.words[earlier] == index.words[at]
    return count > 0


@compiled
def _range_of(places, word):
    """Return where the places of a word begin and end."""
    return (
        np.searchsorted(places[:, 0], word),
        np.searchsorted(places[:, 0], word + 1),
    )


@compiled
def count_phrases(pieces, places, term, counts, index, longest):
    """Return how often the words of a term stand in order, and how often in no longer name."""
    size = index.starts[term + 1] - index.starts[term]
    for offset in range(size):
        if not counts[index.words[index.starts[term] + offset]]:
            return 0, 0
    begin, end = _range_of(places, index.words[index.starts[term]])
    count, num_free = 0, 0
    for at in range(begin, end):
        place = places[at, 1]
        if _is_phrase(pieces, place, term, index):
            count += 1
            num_free += longest[place] <= size
    return count, num_free


@compiled
def _is_phrase(pieces, place, term, index):
    """Return whether the words of a term stand at a place, in their order."""
    size = index.starts[term + 1] - index.starts[term]
    if place + size > len(pieces):
        return False
    for offset in range(size):
        if pieces[place + offset] != index.words[index.starts[term] + offset]:
            return False
    return True


@compiled
def mark_phrases(pieces, places, term, counts, index, longest):
    """Note at each place the size of the longest name that covers it in its order."""
    size = index.starts[term + 1] - index.starts[term]
    for offset in range(size):
        if not counts[index.words[index.starts[term] + offset]]:
            return
    begin, end = _range_of(places, index.words[index.starts[term]])
    for at in range(begin, end):
        place = places[at, 1]
        if _is_phrase(pieces, place, term, index):
            for offset in range(size):
                longest[place + offset] = max(longest[place + offset], size)


@compiled
def _rarest(term, counts, index):
    """Return the word of a term that occurs in the text the fewest times; -1 if none does."""
    rarest, least = -1, 0
    for at in range(index.starts[term], index.starts[term + 1]):
        word = index.words[at]
        if counts[word] and (rarest < 0 or counts[word] < least):
            rarest, least = word, counts[word]
    return rarest


@compiled
def in_sentences(places, term, counts, index):
    """Return the largest share of a term's idf in a sentence with its rarest word, and where.

    That is: the share, the number of sentences with all of its words, and the first and last place
    of the rarest word of the term, in the text, in a sentence of the largest share.
    """
    rarest = _rarest(term, counts, index)
    if rarest < 0:
        return 0.0, 0, 0, 0
    begin, end = _range_of(places, rarest)
    best, num_whole, first, last, before = 0.0, 0, places[begin, 1], places[begin, 1], -1
    for at in range(begin, end):
        sentence = places[at, 2]
        if sentence == before:
            continue
        before = sentence
        share = _share_in(places, term, sentence, counts, index)
        num_whole += share > 0.999
        if share > best:
            best, first = share, places[at, 1]
        if share == best:
            last = places[at, 1]
    return best, num_whole, first, last


@compiled
def _share_in(places, term, sentence, counts, index):
    """Return the share of a term's idf that is in one sentence."""
    total = 0.0
    for at in range(index.starts[term], index.starts[term + 1]):
        word = index.words[at]
        if counts[word] and not is_repeat(index, term, at) and _occurs(places, word, sentence):
            total += index.idf[word]
    return total / index.weights[term]


@compiled
def _occurs(places, word, sentence):
    """Return whether a word occurs in a sentence."""
    begin, end = _range_of(places, word)
    while begin < end:
        middle = (begin + end) // 2
        if places[middle, 2] < sentence:
            begin = middle + 1
        else:
            end = middle
    return begin < len(places) and places[begin, 0] == word and places[begin, 2] == sentence
