"""The terms of labels: each of a label's names as a sequence of words, and an index of them all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float32, Int, Int32, Int64

from longtail.models.files.rows import garbage_collection_off
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.lexical.words import NameWords, pieces

MAX_WORDS = 16
"""Most words of a term; further words of a longer name are not compared."""
_CODE = re.compile(r"(?=.*\d)(?=.*[^\W\d_])[\w.]{3,}")
_BRACKETS = re.compile(r"((?<!\s)\s++)?[(\[][^()\[\]]*+[)\]]\s*")


@dataclass(frozen=True)
class LabelTerms:
    """All names of all labels, as numbers of words.

    Attributes:
        names: Each term as it is written.
        starts: Where each term's words begin in `words`, and where the last one's end.
        words: The words of all terms, in order.
        labels: Whose term it is, rising.
        is_preferred: Whether it is the label's own name rather than another one.
        is_code: Whether it is its id or notation, not a name.
        starts_of_labels: Where the terms of each label begin, and where the last one's end.
        relatives: Labels that are broader or narrower than each label, one after the other.
        starts_of_relatives: Where those of each label begin, and where the last one's end.
    """

    names: tuple[str, ...]
    starts: Int64[np.ndarray, term_and_one]
    words: Int32[np.ndarray, word]
    labels: Int64[np.ndarray, term]
    is_preferred: Bool[np.ndarray, term]
    is_code: Bool[np.ndarray, term]
    starts_of_labels: Int64[np.ndarray, label_and_one]
    relatives: Int64[np.ndarray, relative]
    starts_of_relatives: Int64[np.ndarray, label_and_one]

    @classmethod
    def of(cls, catalogue: LabelCatalogue, words: NameWords) -> LabelTerms:
        """Read the names of all labels."""
        with garbage_collection_off():
            named = [
                (number, name, is_code)
                for number, label in enumerate(catalogue)
                if label.is_in_use  # else it would hide names of labels that may be answered
                for name, is_code in names_of(label).items()
            ]
        starts, numbers = words.read_names((name for _, name, _ in named), MAX_WORDS)
        owners = [number for number, *_ in named]
        kept = _first_of_their_words(owners, _slices(numbers, starts))
        lengths = np.diff(starts)[kept]
        is_kept = np.zeros(len(named), dtype=np.bool_)
        is_kept[kept] = True
        labels = np.array(owners, dtype=np.int64)[kept]
        relatives, starts_of_relatives = _relatives(catalogue)
        return cls(
            names=tuple(named[term][1] for term in kept),
            starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            words=numbers[np.repeat(is_kept, np.diff(starts))],
            labels=labels,
            is_preferred=np.array(
                [named[term][1] == catalogue[owners[term]].name for term in kept], dtype=np.bool_
            ),
            is_code=np.array([named[term][2] for term in kept], dtype=np.bool_),
            starts_of_labels=np.searchsorted(labels, np.arange(len(catalogue) + 1)).astype(
                np.int64
            ),
            relatives=relatives,
            starts_of_relatives=starts_of_relatives,
        )

    @cached_property
    def different_words(
        self,
    ) -> tuple[Int64[np.ndarray, different_word], Int64[np.ndarray, different_word]]:
        """The terms, rising, and the words of each, once and rising."""
        terms = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        pairs = rising(terms << 32 | self.words)
        return pairs >> 32, pairs & 0xFFFFFFFF

    @property
    def num_alike(self) -> Int64[np.ndarray, term]:
        """In how many other labels a term of the same words is, in any order."""
        terms, words = self.different_words
        keys = _slices(words, np.searchsorted(terms, np.arange(len(self.names) + 1)))
        counts = Counter(key for key, _ in set(zip(keys, self.labels.tolist(), strict=True)))
        return np.array([counts[key] - 1 for key in keys], dtype=np.int64)

    def weights(self, idf: Float32[np.ndarray, word_of_names]) -> Float32[np.ndarray, term]:
        """Return the summed idf of each term's different words."""
        terms, words = self.different_words
        sizes = np.bincount(terms, minlength=len(self.names))
        of_words, sums = idf[words], np.empty(len(self.names), dtype=np.float32)
        for size in np.unique(sizes):  # not `np.add.reduceat`, which rounds in another order
            sums[sizes == size] = of_words[sizes[terms] == size].reshape(-1, size).sum(axis=1)
        return sums


def names_of(label: Label) -> dict[str, bool]:
    """Return all names of a label, and whether each is a code rather than a name.

    Its own name is the first, then that without the part in brackets, the other ones, and last
    its id and notation where they differ from words and numbers in a text: one word of three
    characters or more with a letter and a digit, such as "N53.77".
    """
    name = label.name
    without = _BRACKETS.sub(" ", name) if "(" in name or "[" in name else name
    names = (name, without.strip(), *label.alternative_names)
    found = dict.fromkeys(filter(None, names), False)
    for each in (label.id, label.notation):
        if _CODE.fullmatch(each) and len(pieces(each)) == 1:
            found.setdefault(each, True)
    return found


def _first_of_their_words(labels: Sequence[int], keys: Sequence[bytes]) -> list[int]:
    """Return the names that have words, those of the same label and words once."""
    first: dict[tuple[int, bytes], int] = {}
    for name, (label, key) in enumerate(zip(labels, keys, strict=True)):
        if key:
            first.setdefault((label, key), name)
    return list(first.values())


def _slices(words: Int[np.ndarray, word], starts: Int64[np.ndarray, row_and_one]) -> list[bytes]:
    """Return the bytes of each row of words, to compare them by."""
    content, offsets = words.tobytes(), (starts * words.itemsize).tolist()
    return [content[start:stop] for start, stop in pairwise(offsets)]


def rising(numbers: Int64[np.ndarray, number]) -> Int64[np.ndarray, different]:
    """Return each number once, rising: `np.unique`, which takes ten times as long by hashing."""
    found = np.sort(numbers)
    is_new = np.ones(len(found), dtype=np.bool_)
    is_new[1:] = found[1:] != found[:-1]
    return found[is_new]


def _relatives(
    catalogue: LabelCatalogue,
) -> tuple[Int64[np.ndarray, relative], Int64[np.ndarray, label_and_one]]:
    """Return the parents and children of each label, rising, and where each label's begin.

    Retired labels are none.
    """
    in_use = [(number, label) for number, label in enumerate(catalogue) if label.is_in_use]
    numbers: dict[str, int] = {}
    for number, label in in_use:
        numbers.setdefault(label.name, number)
    parents = np.array(
        [
            (number, numbers[parent])
            for number, label in in_use
            for parent in label.parents
            if numbers.get(parent, number) != number
        ],
        dtype=np.int64,
    ).reshape(-1, 2)
    pairs = rising(np.concatenate([parents, parents[:, ::-1]]) @ np.array([2**32, 1]))
    starts = np.searchsorted(pairs >> 32, np.arange(len(catalogue) + 1)).astype(np.int64)
    return pairs & 0xFFFFFFFF, starts
