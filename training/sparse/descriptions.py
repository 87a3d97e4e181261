"""Pseudo label descriptions: a label's name and the words its classifier weighs most (DEPL 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
from jaxtyping import Float, Float32, Int64
from scipy.sparse import csr_array

from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.labels.text import pseudo_description
from longtail.models.matrices import transposed
from longtail.models.scorers.sparse import SparseModel
from longtail.models.scorers.tfidf import TITLE
from longtail.training.configuration.sections import DescriptionConfig


def keywords_of_labels(
    model: SparseModel, catalogue: LabelCatalogue, config: DescriptionConfig
) -> list[tuple[str, ...]]:
    """Return the tokens of highest positive weight of every label, best first.

    Equal weights are ordered by column (DEPL section 3.2).

    A label without a classifier has no keywords, nor has one whose classifier has no positive
    weight (all pruned, or every document carries the label): nothing is made up for it. One with
    fewer positive weights than `num_keywords` has one keyword for each.

    A keyword is a token of the vocabulary: with the analyzer "char" a character n-gram, else a
    lower-case word as it is in the documents, never a stem; and a phrase (`sparse.max_ngram`)
    or a word of titles, whose words are tokens too, only where a label has nothing else.
    """
    keywords: list[tuple[str, ...]] = [()] * len(catalogue)
    is_phrase = model.tfidf.is_phrase
    tokens = [token.removeprefix(TITLE) for token in model.tfidf.tokens]
    weights = transposed(model.weights_by_feature)  # not kept, as `model.weights` is
    for row, label in enumerate(model.labels.tolist()):
        columns = positive_weights(weights, row)[0].tolist()
        words = (tokens[column] for column in columns if not is_phrase(column))
        chosen = tuple(islice(words, config.num_keywords))
        if not chosen and config.num_keywords:
            chosen = tuple(tokens[column] for column in columns[:1])
        keywords[label] = chosen
    return keywords


def related(catalogue: LabelCatalogue, config: DescriptionConfig) -> LabelCatalogue:
    """Return the catalogue with the other names and parents that label texts are to have."""
    return LabelCatalogue(
        replace(
            label,
            alternative_names=label.alternative_names[: config.alternative_names],
            parents=label.parents if config.parents else (),
        )
        for label in catalogue
    )


def positive_weights(
    rows: Float32[csr_array, "label feature"], row: int
) -> tuple[Int64[np.ndarray, positive], Float[np.ndarray, positive]]:
    """Return the columns and values of a row's positive weights, the highest first.

    Equal weights are ordered by column.
    """
    part = slice(*rows.indptr[row : row + 2])
    weights, columns = rows.data[part], rows.indices[part]
    is_positive = weights > 0
    weights, columns = weights[is_positive], columns[is_positive].astype(np.int64)
    order = np.lexsort((columns, -weights))
    return columns[order], weights[order]


def pseudo_descriptions(
    catalogue: LabelCatalogue, keywords: Sequence[tuple[str, ...]]
) -> list[str]:
    """Return `pseudo_description` of every label with its keywords."""
    return [
        pseudo_description(label, words) for label, words in zip(catalogue, keywords, strict=True)
    ]
