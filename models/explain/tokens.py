"""What the tokens of a text add to the sparse model's scores of labels.

The contributions, with the rest and the bias, add up to the score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from jaxtyping import Float32, Float64, Int32, Int64
from scipy.sparse import csr_array

from longtail.models.explain.label_facts import row_of
from longtail.models.explain.spans import spans_of
from longtail.models.results import TokenContribution, TokenExplanation
from longtail.models.scorers.sparse import SparseModel

NUM_TOKENS_FOR = 10
"""Tokens that speak for a label, at most."""
NUM_TOKENS_AGAINST = 5
"""Tokens that speak against it, at most."""
MAX_SPANS = 50
"""Occurrences of one token that are given."""

Entries: TypeAlias = tuple[
    Int32[np.ndarray, "entry"] | Int64[np.ndarray, "entry"], Float32[np.ndarray, "entry"]
]
"""Columns and values of a sparse row."""


def token_contributions(
    model: SparseModel, text: str, features: Entries, labels: Sequence[int]
) -> dict[int, TokenExplanation]:
    """Return what the tokens of a text say about each label that the sparse model knows.

    Args:
        model: The sparse model.
        text: The text.
        features: Its tf-idf row.
        labels: Label indices.
    """
    tokens = model.tfidf.tokens
    rows = {label: row for label in labels if (row := row_of(model, label)) is not None}
    of_text = model.weights_by_feature[features[0]]
    contributions = {label: _contributions(of_text, features, row) for label, row in rows.items()}
    telling = {label: _most_telling(*each) for label, each in contributions.items()}
    named = {tokens[column] for each in telling.values() for column, _ in each}
    spans = spans_of(text, model.tfidf, named) if named else {}
    return {
        label: TokenExplanation(
            tokens=tuple(
                TokenContribution(tokens[column], value, tuple(spans[tokens[column]][:MAX_SPANS]))
                for column, value in telling[label]
            ),
            rest=float(contributions[label][1].sum()) - sum(x for _, x in telling[label]),
            bias=float(model.bias[row]),
        )
        for label, row in rows.items()
    }


def _contributions(
    weights: Float32[csr_array, "entry covered"], features: Entries, row: int
) -> tuple[Int64[np.ndarray, shared], Float64[np.ndarray, shared]]:
    """Return the features that a text and a label share, and tf-idf times weight of each.

    Args:
        weights: Of all labels, for each feature of the text.
        features: Of the text.
        row: Of the label among those with weights.
    """
    columns, values = features
    at = np.flatnonzero(weights.indices == row)
    ours = np.searchsorted(weights.indptr, at, side="right") - 1
    products = values[ours].astype(np.float64) * weights.data[at].astype(np.float64)
    return columns[ours].astype(np.int64), products


def _most_telling(
    columns: Int64[np.ndarray, shared], values: Float64[np.ndarray, shared]
) -> list[tuple[int, float]]:
    """Return the features that count most, for and against, the largest value first."""
    order = np.lexsort((columns, -values))
    in_order = [(int(columns[i]), float(values[i])) for i in order]
    speaking_for = [each for each in in_order if each[1] > 0][:NUM_TOKENS_FOR]
    against = [each for each in in_order if each[1] < 0][-NUM_TOKENS_AGAINST:]
    return speaking_for + against
