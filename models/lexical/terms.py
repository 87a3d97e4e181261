"""The terms of labels: each of a label's names as a sequence of words, and an index of them all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.lexical.words import NameWords, pieces

MAX_WORDS = 16
"""Of a term; what a longer name has beyond is not compared."""
_CODE = re.compile(r"(?=.*\d)(?=.*[^\W\d_])[\w.]{3,}")
_BRACKETS = re.compile(r"\s*[(\[][^()\[\]]*[)\]]\s*")


@dataclass(frozen=True, slots=True)
class LabelTerms:
    """All names of all labels, as numbers of words.

    Attributes:
        names: Each term as it is written.
        starts: Where each term's words begin in `words`, and where the last one's end.
        words: The words of all terms, in order.
        labels: Whose term it is, rising.
        is_preferred: Whether it is the label's own name rather than another one.
        is_code: Whether it is its id or notation, not a name.
        num_alike: Other labels with a term of the same words.
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
    num_alike: Int64[np.ndarray, term]
    starts_of_labels: Int64[np.ndarray, label_and_one]
    relatives: Int64[np.ndarray, relative]
    starts_of_relatives: Int64[np.ndarray, label_and_one]

    @classmethod
    def of(cls, catalogue: LabelCatalogue, words: NameWords) -> LabelTerms:
        """Read the names of all labels.

        Args:
            catalogue: The labels.
            words: Of their names.
        """
        terms = [
            (number, name, read, is_code)
            for number, label in enumerate(catalogue)
            for name, read, is_code in _terms_of(label, words)
        ]
        labels = np.array([number for number, *_ in terms], dtype=np.int64)
        numbers = [read for _, _, read, _ in terms]
        relatives = _relatives(catalogue)
        return cls(
            names=tuple(name for _, name, _, _ in terms),
            starts=_starts(numbers),
            words=np.array([each for read in numbers for each in read], dtype=np.int32),
            labels=labels,
            is_preferred=np.array(
                [name == catalogue[number].name for number, name, *_ in terms], dtype=np.bool_
            ),
            is_code=np.array([each for *_, each in terms], dtype=np.bool_),
            num_alike=_num_alike(numbers, labels),
            starts_of_labels=np.searchsorted(labels, np.arange(len(catalogue) + 1)).astype(
                np.int64
            ),
            relatives=np.array([each for some in relatives for each in some], dtype=np.int64),
            starts_of_relatives=_starts(relatives),
        )

    def weights(self, idf: Float32[np.ndarray, word_of_names]) -> Float32[np.ndarray, term]:
        """Return the summed idf of each term's different words."""
        sums = [
            float(idf[np.unique(self.words[start:stop])].sum())
            for start, stop in zip(self.starts[:-1], self.starts[1:], strict=True)
        ]
        return np.array(sums, dtype=np.float32)


def names_of(label: Label) -> dict[str, bool]:
    """Return all names of a label, and whether each is a code rather than a name.

    Its own name is the first, then that without what stands in brackets, the other ones, and last
    its id and notation where they can be told from words and numbers in a text: one word of three
    characters or more with a letter and a digit, such as "N53.77".
    """
    names = (label.name, _BRACKETS.sub(" ", label.name).strip(), *label.alternative_names)
    found = dict.fromkeys(filter(None, names), False)
    for each in (label.id, label.notation):
        if _CODE.fullmatch(each) and len(pieces(each)) == 1:
            found.setdefault(each, True)
    return found


def _terms_of(label: Label, words: NameWords) -> Iterator[tuple[str, list[int], bool]]:
    """Give the names of a label that have words, those of the same words once; none if retired.

    Yields:
        Name, words, whether it is a code.
    """
    if label.is_retired:  # else it would hide names of labels that may be answered
        return
    seen = set()
    for name, is_code in names_of(label).items():
        read = words.read_name(name)[:MAX_WORDS]
        if read and tuple(read) not in seen:
            seen.add(tuple(read))
            yield name, read, is_code


def _starts(rows: Sequence[Sequence[int]]) -> Int64[np.ndarray, row_and_one]:
    return np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)


def _num_alike(
    terms: Sequence[Sequence[int]], labels: Int64[np.ndarray, term]
) -> Int64[np.ndarray, term]:
    """Return how many other labels have a term of the same words, in any order."""
    keys = [tuple(sorted(set(words))) for words in terms]
    counts = Counter(key for key, _ in set(zip(keys, labels.tolist(), strict=True)))
    return np.array([counts[key] - 1 for key in keys], dtype=np.int64)


def _relatives(catalogue: LabelCatalogue) -> list[list[int]]:
    """Return the parents and children of each label, rising; retired ones are none."""
    in_use = [(number, label) for number, label in enumerate(catalogue) if not label.is_retired]
    numbers: dict[str, int] = {}
    for number, label in in_use:
        numbers.setdefault(label.name, number)
    found: list[set[int]] = [set() for _ in range(len(catalogue))]
    for number, label in in_use:
        for parent in label.parents:
            other = numbers.get(parent, number)
            if other != number:
                found[number].add(other)
                found[other].add(number)
    return [sorted(some) for some in found]
