"""Terms that a vocabulary lacks: keyphrases of many documents that no label's name covers.

A phrase is one to three words in a row, compared as names are, and none of them a function word or
shorter than three letters. A keyphrase of a document is one of its ten phrases with the largest
tf * idf * words.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest

from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.lexical.terms import names_of
from longtail.models.lexical.words import END_OF_SENTENCE, pieces
from longtail.models.scorers.word_forms import WordForms
from longtail.training.data.languages import function_words

_MAX_WORDS, _NUM_KEYPHRASES, _NUM_SHOWN, _MIN_LETTERS = 3, 10, 3, 3
Words = tuple[str, ...]
Documents = Callable[[], Iterable[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Gap:
    """A keyphrase that no name covers: how many documents have it, and ids of the first of them.

    `nearest` has the ids of the labels whose names have most words in common with it.
    """

    phrase: str
    num_documents: int
    examples: Sequence[str]
    nearest: Sequence[str]


class GapFinder:
    """Finds the gaps of a vocabulary."""

    def __init__(self, catalogue: LabelCatalogue, languages: Sequence[str]) -> None:
        """Index the names of all labels, in the languages of the documents."""
        self._form = WordForms(languages).of
        self._empty = {self._form(x) for each in languages or ["en"] for x in function_words(each)}
        self._names = [
            (label.id, frozenset(map(self._form, pieces(name))) - self._empty)
            for label in catalogue
            for name in dict.fromkeys([*names_of(label), *label.names.values()])
        ]
        self._rows: dict[str, list[int]] = defaultdict(list)
        for row, (_, words) in enumerate(self._names):
            for word in words:
                self._rows[word].append(row)

    def find(self, documents: Documents, min_documents: int) -> list[Gap]:
        """Return the gaps, those of most documents first.

        Names cover a phrase where one has all of its words, or it all of two or more of a name's.
        It is left out where one longer phrase stands for half of its documents.

        Args:
            documents: Gives id and text of each, from the first one each time.
            min_documents: That have the phrase as a keyphrase, at least 1.
        """
        ids: dict[Words, list[str]] = defaultdict(list)
        for name, words in self._keyphrases(documents, min_documents):
            ids[words].append(name)
        gaps, longer = [], Counter[Words]()
        for words in sorted(ids, key=lambda x: (-len(x), x)):
            found, alike = ids[words], self._alike(words)
            for part in (words[:-1], words[1:]):
                longer[part] = max(longer[part], longer[words], len(found))
            if len(found) >= min_documents and 2 * longer[words] < len(found) and alike is not None:
                gaps.append(Gap(" ".join(words), len(found), found[:_NUM_SHOWN], alike))
        return sorted(gaps, key=lambda gap: -gap.num_documents)

    def _keyphrases(self, documents: Documents, least: int) -> Iterator[tuple[str, Words]]:
        counts: dict[Words, int] = {}  # documents of each phrase that enough have
        for size in range(1, _MAX_WORDS + 1):  # a phrase has no more than its parts
            of_size = Counter(
                words
                for _, text in documents()
                for words in set(self._phrases(text, size))
                if size == 1 or (words[1:] in counts and words[:-1] in counts)
            )
            counts |= {words: count for words, count in of_size.items() if count >= least}
        total = sum(1 for _ in documents())
        for name, text in documents():
            times = Counter(
                x for size in range(1, _MAX_WORDS + 1) for x in self._phrases(text, size)
            )
            values = {
                words: (count * math.log(total / counts[words]) * len(words), words)
                for words, count in times.items()
                if words in counts
            }
            for words in nlargest(_NUM_KEYPHRASES, values, key=values.__getitem__):
                yield name, words

    def _phrases(self, text: str, size: int) -> Iterator[Words]:
        words = [self._form(x) if _is_word(x) else END_OF_SENTENCE for x in pieces(text)]
        found = zip(*(words[start:] for start in range(size)), strict=False)
        return (x for x in found if END_OF_SENTENCE not in x and self._empty.isdisjoint(x))

    def _alike(self, phrase: Words) -> list[str] | None:
        """Return the labels with the largest share of common words; None if a name covers it."""
        said, share = frozenset(phrase) - self._empty, dict[str, float]()
        for row in sorted({row for word in said for row in self._rows.get(word, ())}):
            label, words = self._names[row]
            if said <= words or (len(words) > 1 and words <= said):
                return None
            share[label] = max(share.get(label, 0.0), len(words & said) / len(words | said))
        return nlargest(_NUM_SHOWN, share, key=share.__getitem__)


def _is_word(piece: str) -> bool:
    return any(map(str.isalpha, piece)) and (len(piece) >= _MIN_LETTERS or not piece.isascii())
