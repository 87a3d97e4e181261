"""Finding labels by words: names, ids, descriptions and keywords, whatever the case and accents.

An inverted index: the vocabulary is sorted, so the labels of all words with a prefix lie side by
side, and a query is a few slices.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy.dtypes import StringDType

from longtail.models.labels.catalogue import LabelCatalogue

MAX_WORDS = 200
"""Words of one label that are indexed, the first ones."""
_WORD = re.compile(r"[^\W_]+")
_LAST = "\U0010ffff"
_NUM_TIERS = 4


@dataclass(frozen=True, slots=True)
class Found:
    """Labels that a query finds.

    Attributes:
        total: How many it finds in all.
        labels: Some of them, by their rows in the catalogue, the best first.
    """

    total: int
    labels: tuple[int, ...]


class LabelSearch:
    """Finds labels of one catalogue."""

    def __init__(
        self,
        catalogue: LabelCatalogue,
        other_names: Sequence[tuple[str, ...]] | None = None,
        stem_of: Callable[[str], str] = str,
    ) -> None:
        """Index all labels.

        Args:
            catalogue: Names, names in other languages, notations, ids and texts.
            other_names: Further names of each label; None: those of the catalogue.
            stem_of: Returns the stem of a word of a query, looked up where no word begins with it.
        """
        self._stem_of = stem_of
        if other_names is None:
            other_names = [label.alternative_names for label in catalogue]
        names = [folded(label.name).strip() for label in catalogue]
        ids = [folded(label.id).strip() for label in catalogue]
        more = [
            (row, folded(name).strip())
            for row, (label, others) in enumerate(zip(catalogue, other_names, strict=True))
            for name in {*label.names.values(), *others, label.notation} - {label.name, ""}
        ]
        others = (
            f"{label_id} {folded(label.description)} {folded(label.pseudo_description)}"
            for label_id, label in zip(ids, catalogue, strict=True)
        )
        self._num_labels = len(catalogue)
        self._starts = _Sorted(chain(enumerate(names), enumerate(ids), more))
        words_of_others = ((row, word) for row, name in more for word in _WORD.findall(name))
        self._words_of_names = _Sorted(chain(_words_of(names), words_of_others))
        self._words = _Sorted(_words_of(others))
        counts = catalogue.training_counts
        self._place = np.empty(len(counts), dtype=np.int64)
        self._place[np.lexsort((np.arange(len(counts)), -counts))] = np.arange(len(counts))

    def find(
        self,
        query: str,
        *,
        limit: int,
        offset: int = 0,
        by: Float64[np.ndarray, label] | None = None,
    ) -> Found:
        """Return the labels that a query finds.

        A label is found whose name (in any language), notation or id begins with the query, or
        where each word of the query begins a word of its names, id, description or keywords. First
        come those whose name or id is the query, then those whose name or id begins with it, those
        with all words in the name, and all others; among equals those with more training documents,
        and the smaller index.

        Args:
            query: An empty one finds all labels; one without a letter or digit those whose name or
                id begins with it.
            limit: Number of labels to return.
            offset: Labels to pass over.
            by: A number of each label; labels come in its rising order then, those with nan last,
                and only among equals in the order above.
        """
        tiers = self._tiers(folded(query).strip(), is_empty=not query.strip())
        key = tiers * self._num_labels + self._place
        found = np.flatnonzero(key < _NUM_TIERS * self._num_labels)
        if by is not None:
            key[found[np.lexsort((key[found], by[found]))]] = np.arange(len(found))
        count = min(offset + limit, len(found))
        if not count:
            return Found(len(found), ())
        best = found[np.argpartition(key[found], count - 1)[:count]]
        in_order = best[np.argsort(key[best])][offset:]
        return Found(len(found), tuple(in_order.tolist()))

    def _tiers(self, query: str, *, is_empty: bool) -> Int64[np.ndarray, label]:
        """Return how well each label fits, 0 the best; `_NUM_TIERS` where it does not."""
        if is_empty:
            return np.zeros(self._num_labels, dtype=np.int64)
        tiers = np.full(self._num_labels, _NUM_TIERS, dtype=np.int64)
        if words := _WORD.findall(query):
            in_name = [self._has(self._words_of_names, word) for word in words]
            anywhere = [
                named | self._has(self._words, word)
                for named, word in zip(in_name, words, strict=True)
            ]
            tiers[np.logical_and.reduce(anywhere)] = 3
            tiers[np.logical_and.reduce(in_name)] = 2
        if query:  # accents alone leave nothing
            tiers[self._starts.with_prefix(query)] = 1
            tiers[self._starts.equal_to(query)] = 0
        return tiers

    def _has(self, words: _Sorted, prefix: str) -> Bool[np.ndarray, label]:
        has = np.zeros(self._num_labels, dtype=np.bool_)
        has[words.with_prefix(prefix)] = True
        if not has.any():
            has[words.with_prefix(self._stem_of(prefix))] = True
        return has


class _Sorted:
    """Labels by strings, in the order of the strings."""

    def __init__(self, pairs: Iterable[tuple[int, str]]) -> None:
        """Sort labels and their strings."""
        code_of: dict[str, int] = {}  # each string is held once, however many labels have it
        codes, labels = array("i"), array("i")
        for label, string in pairs:
            codes.append(code_of.setdefault(string, len(code_of)))
            labels.append(label)
        strings = np.array(list(code_of), dtype=StringDType())
        order = np.argsort(strings)  # by code points, as `sorted`; requests are answered meanwhile
        self._strings = strings[order]
        places = np.argsort(order).astype(np.int32)[np.asarray(codes)]
        self._labels = np.asarray(labels)[np.argsort(places, kind="stable")]
        self._ends = np.append(0, np.bincount(places, minlength=len(code_of)).cumsum())

    def with_prefix(self, prefix: str) -> np.ndarray:
        """Return the labels of all strings that begin so; one may come more than once."""
        first = bisect_left(self._strings, prefix)
        last = bisect_left(self._strings, prefix + _LAST, first)
        return self._labels[self._ends[first] : self._ends[last]]

    def equal_to(self, string: str) -> np.ndarray:
        """Return the labels of a string."""
        place = bisect_left(self._strings, string)
        is_found = place < len(self._strings) and self._strings[place] == string
        return self._labels[self._ends[place] : self._ends[place + is_found]]


def folded(text: str) -> str:
    """Return a text without accents and in one case."""
    if text.isascii():
        return text.lower()
    # Folding the case may leave marks of its own, so that it comes first.
    parts = unicodedata.normalize("NFKD", text.casefold())
    return "".join(part for part in parts if not unicodedata.combining(part)).casefold()


def _words_of(texts: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield each label with each of its words, once."""
    for label, text in enumerate(texts):
        words = (match.group() for match in islice(_WORD.finditer(text), MAX_WORDS))
        for word in dict.fromkeys(words):
            yield label, word
