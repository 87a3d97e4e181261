"""What is known of labels, whatever the text: keywords, labels like them, who can score them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from jaxtyping import Float32, Int32, Int64
from scipy.sparse import csr_array

from longtail.models.explain.neighbours import LabelNeighbours, VectorNeighbours, WeightNeighbours
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.parts.model_parts import ModelParts
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.results import Keyword, NearLabel
from longtail.models.scorers.sparse import SparseModel

NUM_KEYWORDS = 10
NUM_NEAREST = 5
_MAX_KEPT = 4096
"""Labels whose neighbours are remembered."""


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
        self._is_confidential = parts.is_confidential
        self._neighbours: LabelNeighbours = (
            WeightNeighbours(parts.sparse, parts.catalogue.is_retired)
            if parts.dense is None
            else VectorNeighbours(parts.dense.label_vectors, parts.catalogue.is_retired)
        )
        self._kept: dict[int, tuple[NearLabel, ...]] = {}

    def keywords(self, labels: Sequence[int]) -> list[tuple[Keyword, ...]]:
        """Return the tokens of largest positive weight; ties in the order of the vocabulary.

        Only tokens with a letter: the number of a document is no keyword. None of a confidential
        model: a word of one person may be the one that tells a rare label.
        """
        if self._is_confidential:
            return [()] * len(labels)
        rows = [row_of(self._sparse, label) for label in labels]
        known = [row for row in rows if row is not None]
        weights = self._sparse.rows(np.array(known, dtype=np.int64))
        found = iter([self._keywords(*entries_of(weights, row)) for row in range(len(known))])
        return [() if row is None else next(found) for row in rows]

    def _keywords(
        self,
        columns: Int32[np.ndarray, entry] | Int64[np.ndarray, entry],
        weights: Float32[np.ndarray, entry],
    ) -> tuple[Keyword, ...]:
        order = np.lexsort((columns, -weights))
        tokens = self._sparse.tfidf.tokens
        keywords = (
            Keyword(tokens[columns[i]], float(weights[i]))
            for i in order
            if weights[i] > 0 and any(map(str.isalpha, tokens[columns[i]]))
        )
        return tuple(islice(keywords, NUM_KEYWORDS))

    def nearest(self, labels: Sequence[int]) -> list[tuple[NearLabel, ...]]:
        """Return the nearest labels of each of these, the nearest first; they are remembered."""
        kept = self._kept  # never made smaller: another thread may read it
        unknown = [label for label in dict.fromkeys(labels) if label not in kept]
        if len(kept) + len(unknown) > _MAX_KEPT:
            kept = self._kept = {}
            unknown = list(dict.fromkeys(labels))
        if unknown:
            kept.update(zip(unknown, self._nearest(unknown), strict=True))
        return [kept[label] for label in labels]

    def _nearest(self, labels: Sequence[int]) -> list[tuple[NearLabel, ...]]:
        found = self._neighbours.nearest_to(np.array(labels, dtype=np.int64), NUM_NEAREST)
        return [
            tuple(
                NearLabel(self.catalogue[index].id, self.catalogue[index].name, cosine)
                for index, cosine in zip(near.tolist(), cosines.tolist(), strict=True)
                if index != NO_LABEL
            )
            for near, cosines in zip(found.labels, found.scores, strict=True)
        ]


def row_of(model: SparseModel, label: int) -> int | None:
    """Return the row of a label in the sparse model; None where it has none."""
    row = int(np.searchsorted(model.labels, label))
    return row if row < len(model.labels) and model.labels[row] == label else None


def entries_of(
    matrix: Float32[csr_array, "row column"], row: int
) -> tuple[Int32[np.ndarray, entry] | Int64[np.ndarray, entry], Float32[np.ndarray, entry]]:
    """Return the columns and values of a row's entries."""
    part = slice(matrix.indptr[row], matrix.indptr[row + 1])
    return matrix.indices[part], matrix.data[part]
