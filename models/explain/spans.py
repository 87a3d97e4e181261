"""Where in a text the tokens of the sparse model stand."""

from __future__ import annotations

from collections.abc import Container, Iterator

import numpy as np
from jaxtyping import Int64

from longtail.models.results import Span
from longtail.models.scorers.character_terms import placed_terms
from longtail.models.scorers.markup import placed_without_markup
from longtail.models.scorers.tfidf import CHAR, TOKEN_PATTERN, TfidfModel


def spans_of(text: str, tfidf: TfidfModel, requested: Container[str]) -> dict[str, list[Span]]:
    """Return where some tokens stand in a text, its HTML included, in rising order.

    Args:
        text: Any.
        tfidf: Whose words and phrases the tokens are.
        requested: The tokens; those that the text does not have are not in the answer.
    """
    if tfidf.removes_markup:
        cleaned, starts, stops = placed_without_markup(text)
        return {
            token: [(int(starts[start]), int(stops[end - 1])) for start, end in each]
            for token, each in _spans_of(cleaned, tfidf, requested).items()
        }
    return _spans_of(text, tfidf, requested)


def _spans_of(text: str, tfidf: TfidfModel, requested: Container[str]) -> dict[str, list[Span]]:
    lowered = text.lower()
    placed = placed_terms(lowered) if tfidf.analyzer == CHAR else _placed_words(lowered, tfidf)
    spans: dict[str, list[Span]] = {}
    for term, start, stop in placed:
        token = tfidf.token_of(term)
        if token is not None and token in requested:
            spans.setdefault(token, []).append((start, stop))
    if len(lowered) == len(text):
        return spans
    positions = _positions(text)
    return {
        token: [(int(positions[start]), int(positions[end - 1]) + 1) for start, end in each]
        for token, each in spans.items()
    }


def _placed_words(lowered: str, tfidf: TfidfModel) -> Iterator[tuple[str, int, int]]:
    """Give the words and phrases of a lower-case text.

    Yields:
        Token, first character, and the one behind the last.
    """
    found = list(TOKEN_PATTERN.finditer(lowered))
    words = [tfidf.form_of(match.group()) for match in found]
    for length in range(1, tfidf.max_ngram + 1):
        for first in range(len(words) - length + 1):
            start, stop = found[first].start(), found[first + length - 1].end()
            yield " ".join(words[first : first + length]), start, stop


def _positions(text: str) -> Int64[np.ndarray, lowered]:
    """Return of each character of the lower-case text the place of the one that it comes from."""
    lengths = [len(character.lower()) for character in text]
    return np.repeat(np.arange(len(text), dtype=np.int64), lengths)
