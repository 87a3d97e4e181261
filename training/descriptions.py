"""Pseudo label descriptions: a label's name and the words its classifier weighs most (DEPL 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.labels import LabelCatalogue
from models.sparse import SparseModel


def keywords_of_labels(model: SparseModel, num_labels: int, count: int) -> list[tuple[str, ...]]:
    """Return the tokens of highest positive weight of every label, best first.

    Equal weights are ordered by column. A label without a classifier has no keywords; one with
    fewer positive weights than `count` has so many.

    Args:
        model: The sparse classifiers.
        num_labels: Labels in the catalogue.
        count: Keywords wanted a label; the k of the paper.
    """
    keywords: list[tuple[str, ...]] = [()] * num_labels
    for row, label in enumerate(model.labels):
        begin, end = model.weights.indptr[row : row + 2]
        weights, columns = model.weights.data[begin:end], model.weights.indices[begin:end]
        order = np.lexsort((columns, -weights))[:count]
        keywords[label] = tuple(model.tfidf.tokens[columns[i]] for i in order if weights[i] > 0)
    return keywords


def pseudo_descriptions(
    catalogue: LabelCatalogue, keywords: Sequence[tuple[str, ...]]
) -> list[str]:
    """Return pseudo_label(l) = label_name(l) + keywords(l) for every label (DEPL section 3.2).

    A publisher's description, where there is one, stands between the two. A full stop parts them,
    so that the encoder doesn't read a name and a keyword as one phrase. Keywords that are words
    of the name are kept, as in the paper.
    """
    parts = (
        (label.name, label.description, " ".join(words))
        for label, words in zip(catalogue, keywords, strict=True)
    )
    return [". ".join(part.strip() for part in three if part.strip()) for three in parts]
