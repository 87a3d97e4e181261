"""What is known of labels, whatever the text: keywords, labels like them, who can score them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from jaxtyping import Float32, Int32, Int64
from scipy.sparse import csr_array

from models.labels import Label, LabelCatalogue
from models.manifest import TEXT
from models.neighbours import Neighbours, VectorNeighbours, WeightNeighbours
from models.parts import ModelParts
from models.ranking import NO_LABEL
from models.sparse import SparseModel

NUM_KEYWORDS = 10
NUM_NEAREST = 5
_MOST_KEPT = 4096
"""Labels whose neighbours are remembered."""


@dataclass(frozen=True, slots=True)
class Keyword:
    """A token by which the sparse model knows a label, and its weight."""

    token: str
    weight: float


@dataclass(frozen=True, slots=True)
class NearLabel:
    """A label that is like another one.

    Attributes:
        index: Its row in the catalogue.
        id: The caller's identifier.
        name: What people read.
        similarity: Cosine of the two labels' retrieval vectors, or of their sparse weights where
            the model has no encoder.
    """

    index: int
    id: str
    name: str
    similarity: float


@dataclass(frozen=True, slots=True)
class LabelDetails:
    """All that is known of a label.

    Attributes:
        index: Its row in the catalogue.
        label: What the catalogue says.
        keywords: What the sparse model knows it by, the largest weight first.
        nearest: Labels that are like it, the nearest first.
        scorers: Those that can give it a score.
    """

    index: int
    label: Label
    keywords: tuple[Keyword, ...]
    nearest: tuple[NearLabel, ...]
    scorers: tuple[str, ...]


class LabelFacts:
    """What is known of labels, whatever the text."""

    def __init__(self, parts: ModelParts) -> None:
        self.catalogue: LabelCatalogue = parts.catalogue
        self._sparse = parts.sparse
        self._reads_texts = parts.input == TEXT
        self._neighbours: Neighbours = (
            WeightNeighbours(parts.sparse, len(parts.catalogue))
            if parts.dense is None
            else VectorNeighbours(parts.dense.label_vectors)
        )
        self._kept: dict[int, tuple[NearLabel, ...]] = {}

    def keywords(self, label: int) -> tuple[Keyword, ...]:
        """Return the tokens of largest positive weight; ties in the order of the vocabulary.

        Of a text's tokens only those with a letter: the number of a document is no keyword.
        """
        row = row_of(self._sparse, label)
        if row is None:
            return ()
        columns, weights = entries_of(self._sparse.weights, row)
        order = np.lexsort((columns, -weights))
        tokens = self._sparse.tfidf.tokens
        keywords = (
            Keyword(tokens[columns[place]], float(weights[place]))
            for place in order
            if weights[place] > 0 and self._is_keyword(tokens[columns[place]])
        )
        return tuple(islice(keywords, NUM_KEYWORDS))

    def _is_keyword(self, token: str) -> bool:
        return not self._reads_texts or any(character.isalpha() for character in token)

    def nearest(self, labels: Sequence[int]) -> list[tuple[NearLabel, ...]]:
        """Return the nearest labels of each of these, the nearest first."""
        kept = self._kept  # never made smaller: another thread may read it
        unknown = [label for label in dict.fromkeys(labels) if label not in kept]
        if len(kept) + len(unknown) > _MOST_KEPT:
            kept = self._kept = {}
            unknown = list(dict.fromkeys(labels))
        if unknown:
            found = self._neighbours.nearest(np.array(unknown, dtype=np.int64), NUM_NEAREST)
            for label, near, cosines in zip(unknown, found.labels, found.scores, strict=True):
                kept[label] = tuple(
                    NearLabel(index, self.catalogue[index].id, self.catalogue[index].name, cosine)
                    for index, cosine in zip(near.tolist(), cosines.tolist(), strict=True)
                    if index != NO_LABEL
                )
        return [kept[label] for label in labels]


def row_of(model: SparseModel, label: int) -> int | None:
    """Return the row of a label in the sparse model; None where it has none."""
    row = int(np.searchsorted(model.labels, label))
    return row if row < len(model.labels) and model.labels[row] == label else None


def entries_of(
    matrix: Float32[csr_array, "row column"], row: int
) -> tuple[Int32[np.ndarray, "entry"] | Int64[np.ndarray, "entry"], Float32[np.ndarray, "entry"]]:
    """Return the columns and values of a row's entries."""
    part = slice(matrix.indptr[row], matrix.indptr[row + 1])
    return matrix.indices[part], matrix.data[part]
