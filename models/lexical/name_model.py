"""The model behind the scorer `names`: how likely a label is right whose name is found so."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Int64

from longtail.models.labels.catalogue import Label, LabelCatalogue, named_label
from longtail.models.lexical.boosted_trees import BoostedTrees
from longtail.models.lexical.match_kernels import AS_A_CODE, AS_A_PHRASE, IN_A_SENTENCE, PARTLY
from longtail.models.lexical.matcher import (
    FindHistory,
    Matches,
    NameMatcher,
    WordCounts,
    expected_finds,
    pairs_of,
)
from longtail.models.lexical.new_words import documents_of
from longtail.models.lexical.terms import LabelTerms, names_of
from longtail.models.lexical.words import NameWords
from longtail.models.matrices import Rows
from longtail.models.results import FoundName, Manner
from longtail.models.scorers.tfidf import TfidfModel

_MANNERS: dict[int, Manner] = {
    PARTLY: "partly", IN_A_SENTENCE: "sentence", AS_A_PHRASE: "phrase", AS_A_CODE: "phrase",
}  # fmt: skip
_PHRASES, _SENTENCES, _IN_TITLE = 2, 3, 6
"""Columns of `longtail.models.lexical.matcher.FEATURES`."""
_ALMOST_ALL = 0.999
_CODE_WEIGHT = np.float32(8)
"""What a code says is not to be outweighed: blends give names of frequent labels little weight. On
the demo with ids like codes, "Diagnosis: N53.77" is answered by its label first in all bands with
8, and with 1 in none of those with 100 documents."""

_USUAL = 0.95
"""Share of labels that are found in no more documents than a new one may be without harm. Of 200
labels held back from the demo and added again, R@10 is 61 % with 0.95, 54 with 0.9, 68 without any
such count. Without, "in the" takes 22 % of first places; what is left `edit.effect` measures. On
6,000 documents of Tate: 21.4 % with 0.9, 21.7 with 0.95, 22.4 with 0.99, 23.0 without (standard
error about 2 points), and P@1 of other documents is 71.7 % with each. Labels such as "in the" are
in the first ten of 0, 0, 1.6 and 73 % of the texts."""


@dataclass(frozen=True)
class NameModel:
    """One classifier of matches for all labels (after Medelyan 2009, and Annif's MLLM).

    It holds no weights of labels, so a label that was never seen in training is scored as well.

    Attributes:
        catalogue: The labels, with all of their names and those of their parents.
        counts: Counts of the words of names.
        history: History of each label.
        trees: Log-odds that a match is right, of `longtail.models.lexical.matcher.FEATURES`.
        languages: Languages of texts and names (`longtail.models.scorers.word_forms`).
        removes_markup: Whether texts are read without HTML, as the sparse model reads them.
        tfidf: Tf-idf model of the same documents; it holds how frequent the words of new names are.
        samples: Some of these documents, which tell it too (`longtail.models.lexical.new_words`).
    """

    catalogue: LabelCatalogue
    counts: WordCounts
    history: FindHistory
    trees: BoostedTrees
    languages: tuple[str, ...] = ()
    removes_markup: bool = False
    tfidf: TfidfModel | None = None
    samples: tuple[str, ...] = ()

    @cached_property
    def matcher(self) -> NameMatcher:
        """Finds the names; made when first asked for."""
        words = NameWords(self.counts.words, self.languages, removes_markup=self.removes_markup)
        return NameMatcher(self.catalogue, words, self.counts)

    def prepare_matcher(self) -> NameMatcher:
        """Build the search for names now, and return it."""
        return self.matcher

    def scores(self, texts: Sequence[str]) -> Rows:
        """Return the log-odds that labels are right whose names are found in texts.

        Labels that have no entry, which is not the same as one of 0, are not found.
        """
        matches = self.matcher.match(texts)
        return Rows(matches.starts, matches.labels, self.score(matches))

    def num_known_words(self, texts: Sequence[str]) -> Int64[np.ndarray, text]:
        """Return how many different words of each text are in a name of a label."""
        words = self.matcher.words
        read = (words.read(words.cleaned(text)) for text in texts)
        return np.array([len(np.unique(x[x >= 0])) for x in read], dtype=np.int64)

    def score(self, matches: Matches) -> Float32[np.ndarray, match]:
        """Return the log-odds that the labels of matches are right.

        Those of a code are at least `_CODE_WEIGHT` times what is known of codes, of which the
        trees may have learned nothing.
        """
        known = self.history.features(matches.labels, matches.kinds)
        found = self.trees.log_odds(np.concatenate([matches.seen, known], axis=1))
        is_code = matches.kinds == AS_A_CODE
        np.maximum(found, _CODE_WEIGHT * known[:, 0], out=found, where=is_code)
        return found

    def found(self, text: str, labels: Collection[int]) -> dict[int, FoundName]:
        """Return the name of each of some labels that was found in a text, by label."""
        matches = self.matcher.match([text])
        terms, found = self.matcher.terms, {}
        for at, label in enumerate(matches.labels.tolist()):
            if label not in labels:
                continue
            term, seen = int(matches.terms[at]), matches.seen[at]
            kind = int(matches.kinds[at])
            count = 0 if kind == PARTLY else seen[_SENTENCES if kind < AS_A_PHRASE else _PHRASES]
            found[label] = FoundName(
                name=terms.names[term],
                is_own_name=bool(terms.is_preferred[term]),
                manner=_MANNERS[kind],
                count=round(float(np.expm1(count))),
                in_title=bool(seen[_IN_TITLE] > _ALMOST_ALL),
            )
        return found

    def with_labels(self, labels: Sequence[Label]) -> NameModel:
        """Return the same classifier for more labels, whose names were found in no document.

        Args:
            labels: They come after the others.
        """
        history = FindHistory.none(len(labels))
        return self.with_catalogue(
            LabelCatalogue([*self.catalogue, *map(named_label, labels)]),
            FindHistory(
                np.concatenate([self.history.found, history.found]),
                np.concatenate([self.history.right, history.right]),
            ),
            range(len(self.catalogue), len(self.catalogue) + len(labels)),
        )

    def with_catalogue(
        self, catalogue: LabelCatalogue, history: FindHistory, renamed: Iterable[int]
    ) -> NameModel:
        """Return the same classifier for labels of other names.

        Args:
            catalogue: What `named_label` keeps of each label.
            history: History of each of the new labels.
            renamed: Rows of those with other names than before. As far as their words are in more
                training documents than names usually are, they count as found there, and wrong.
        """
        counts = self._extended_counts(catalogue)
        terms = LabelTerms.of(catalogue, NameWords(counts.words, self.languages))
        usual = np.quantile(self.history.found, _USUAL, axis=0).astype(np.int64)
        expected = expected_finds(terms, counts, renamed, len(catalogue)) - usual
        found = np.maximum(history.found, expected)
        history = FindHistory(found, history.right)
        return replace(self, catalogue=catalogue, counts=counts, history=history)

    def _extended_counts(self, catalogue: LabelCatalogue) -> WordCounts:
        """Return counts that have all words and pairs of words of a catalogue's names.

        A new pair counts as its rarer word, which occurs wherever the pair does.
        """
        counts = self.counts
        named = NameWords.of_names(
            (x for each in catalogue for x in names_of(each)), self.languages
        )
        known = set(counts.words)
        new = tuple(word for word in named.words if word not in known)
        words = NameWords((*counts.words, *new), self.languages)
        of_new = documents_of(new, counts.num_documents, self.languages, self.tfidf, self.samples)
        documents = np.concatenate([counts.documents, of_new])
        pairs = np.union1d(counts.pairs, pairs_of(LabelTerms.of(catalogue, words))).astype(np.int64)
        pair_documents = np.minimum(documents[pairs >> 32], documents[pairs & 0xFFFFFFFF])
        pair_documents[np.searchsorted(pairs, counts.pairs)] = counts.pair_documents
        return WordCounts(words.words, documents, pairs, pair_documents, counts.num_documents)
