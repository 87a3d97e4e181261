"""Which words may become features: those of enough different documents, and not of a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, Int64
from scipy.sparse import csr_array

from longtail.models.errors import ConfigError
from longtail.models.files.failures import reason_of
from longtail.models.labels.search import folded
from longtail.models.scorers.character_terms import LENGTHS, unspaced_share
from longtail.models.scorers.tfidf import TOKEN_PATTERN
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.splits import Split


@dataclass(frozen=True, slots=True)
class WordRule:
    """Which words may become features, beside the bounds of the document frequency.

    Attributes:
        excluded: Words that may not, in one case and without accents.
        least: In how many different documents a word must occur.
        groups: Numbers of the documents' groups, in one or several ways to group them; documents
            with the same number count once. A word needs `least` groups in each of these ways.
    """

    excluded: frozenset[str] = frozenset()
    least: int = 1
    groups: tuple[Int64[np.ndarray, document], ...] = ()

    def excludes(self, term: str) -> bool:
        """Whether a word, or a word of a phrase, or an n-gram is on the list."""
        return any(word in self.excluded for word in folded(term).split())

    def allowed(
        self, terms: Sequence[str], counts: Float32[csr_array, "document term"]
    ) -> Bool[np.ndarray, term]:
        """Return whether each term may become a feature.

        Args:
            terms: Words, phrases or n-grams.
            counts: How often each occurs in each document.
        """
        found = np.ones(len(terms), dtype=np.bool_)
        if self.excluded:
            found = np.array([not self.excludes(term) for term in terms], dtype=np.bool_)
        for groups in self.groups:
            found &= _num_groups(groups, counts) >= self.least
        return found


ANY_WORD = WordRule()
"""Every word may become a feature."""


def word_rule_of(split: Split, config: TrainingConfig) -> WordRule:
    """Return the rule of a run; the documents are read where the run is confidential.

    Equal texts count once, whatever their case and white space, and so do documents of one group:
    of one value of the group column, or of one id where there is no such column.
    """
    excluded = read_excluded_words(config.excluded_words)
    if not config.confidential:
        return WordRule(excluded)
    texts, sources = [], []
    for document in split:
        texts.append(hash(" ".join(document.text.casefold().split())))
        sources.append(hash(document.id if document.group is None else document.group))
    groups = tuple(np.unique(each, return_inverse=True)[1] for each in (texts, sources))
    return WordRule(excluded, config.sparse.min_document_count, groups)


def read_excluded_words(path: Path | None) -> frozenset[str]:
    """Return the words of a list, in one case and without accents; none without a list.

    Each word of a line counts for itself. Of a word longer than an n-gram, as names in scripts
    without spaces can be, its longest n-grams are excluded too.
    """
    if path is None:
        return frozenset()
    try:
        words = TOKEN_PATTERN.findall(path.read_text(encoding="utf-8-sig").lower())
    except (OSError, UnicodeDecodeError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(
            f"excluded_words {str(path)!r}: can't be read: {reason}; give a text file in UTF-8 "
            "with a word or a name a line"
        ) from error
    if not words:
        raise ConfigError(
            f"excluded_words {str(path)!r}: holds no word of two letters or more; give a word or "
            "a name a line, or leave the setting out"
        )
    return frozenset(map(folded, (*words, *_ngrams_of_longer(words))))


def _ngrams_of_longer(words: Iterable[str]) -> Iterator[str]:
    longest = LENGTHS[-1]
    for word in words:
        if len(word) > longest and unspaced_share([word]) == 1:
            yield from (word[i : i + longest] for i in range(len(word) - longest + 1))


def _num_groups(
    groups: Int64[np.ndarray, document], counts: Float32[csr_array, "document term"]
) -> Int64[np.ndarray, term]:
    """Return in how many groups of documents each term occurs."""
    num_documents, num_terms = counts.shape
    member = csr_array((np.ones(num_documents), groups, np.arange(num_documents + 1)))
    found = csr_array(member.T @ counts)  # (group, term)
    return np.bincount(found.indices, minlength=num_terms)
