"""In how many training documents words occur that no name had: counted from the rest of a bundle.

A word without a count is taken as common: as a rare one it would outweigh all other words of a text
that has it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64

from longtail.models.lexical.words import NameWords, pieces
from longtail.models.scorers.tfidf import TOKEN_PATTERN, WORD, TfidfModel

_LEAST_SAMPLES = 8
"""Texts of which none has a word that `sparse.max_document_share` (0.7) left out of the features,
by chance: one time in 15,000."""


def documents_of(
    words: Sequence[str],
    num_documents: int,
    languages: Sequence[str],
    tfidf: TfidfModel | None,
    samples: Sequence[str] = (),
) -> Int64[np.ndarray, word]:
    """Return estimates of the document frequencies of words, never far below the true ones.

    A feature's follows from its idf; a word of several features has their sum. No document is
    counted of a word that is no feature and in no sample: it was too rare to become one, not too
    frequent. All documents are of what could be no feature, or is in a sample all the same.

    Args:
        words: In their compared form (`NameWords`).
        num_documents: Training documents.
        languages: Languages of the word forms.
        tfidf: Tf-idf model of these documents; None: nothing is known, and all words are common.
        samples: Some of these documents, or as good as they.
    """
    counted: dict[str, float] = {}
    seen: set[str] = set()
    if tfidf is not None:
        form = NameWords((), languages).forms.of
        frequencies = (1 + num_documents) / np.exp(tfidf.idf.astype(np.float64) - 1) - 1
        for token, frequency in zip(tfidf.tokens, frequencies.tolist(), strict=True):
            if " " not in token:
                counted[form(token)] = counted.get(form(token), 0) + frequency
        if tfidf.analyzer == WORD and len(samples) >= _LEAST_SAMPLES:
            seen = {form(x) for text in samples for x in pieces(tfidf.cleaned(text))}
    found = [
        counted.get(
            word, 0 if seen and word not in seen and TOKEN_PATTERN.fullmatch(word) else np.inf
        )
        for word in words
    ]
    return np.clip(np.rint(np.minimum(found, num_documents)), 0, None).astype(np.int64)
