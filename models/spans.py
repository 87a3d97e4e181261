"""Where in a text the tokens of the sparse model stand."""

from __future__ import annotations

from collections.abc import Container

import numpy as np
from jaxtyping import Int64

from models.sparse import TOKEN_PATTERN, TfidfModel

Span = tuple[int, int]
"""First character, and the one behind the last; characters are Unicode code points."""


def spans_of(text: str, tfidf: TfidfModel, wanted: Container[str]) -> dict[str, list[Span]]:
    """Return where some tokens stand in a text, in rising order.

    Args:
        text: Any.
        tfidf: Whose words, lemmas and phrases the tokens are.
        wanted: The tokens; those that the text does not have are not in the answer.
    """
    lowered = text.lower()
    found = list(TOKEN_PATTERN.finditer(lowered))
    words = [tfidf.lemmas.get(match.group(), match.group()) for match in found]
    spans: dict[str, list[Span]] = {}
    for length in range(1, tfidf.max_ngram + 1):
        for first in range(len(words) - length + 1):
            token = " ".join(words[first : first + length])
            if token in wanted:
                span = (found[first].start(), found[first + length - 1].end())
                spans.setdefault(token, []).append(span)
    if len(lowered) == len(text):
        return spans
    places = _places(text)
    return {
        token: [(int(places[start]), int(places[end - 1]) + 1) for start, end in each]
        for token, each in spans.items()
    }


def _places(text: str) -> Int64[np.ndarray, "lowered"]:
    """Return of each character of the lower-case text the place of the one that it comes from."""
    lengths = [len(character.lower()) for character in text]
    return np.repeat(np.arange(len(text), dtype=np.int64), lengths)
