"""Inner products plus log p_n of a label tree as sources (Bamler & Mandt 2020, Eq. 5).

Either two sources, one of inner products and one of log p_n, for the Threshold Algorithm, which is
certified after it has scored few labels; or, of few labels, one source that scores all of them: by
a matrix product and log p_n of every leaf. The labels and scores are the same, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Int64

from longtail.models.label_tree.search import TreeSource
from longtail.models.label_tree.tree import LabelTree
from longtail.models.ranking.exhaustive import MAX_PRODUCTS, row_parts, scores_all
from longtail.models.ranking.index import InnerProductIndex, InnerProductSource
from longtail.models.ranking.top_k import Ranking, Source, nothing, top_of_candidates


def corrected_sources(
    index: InnerProductIndex,
    queries: Float32[np.ndarray, "batch indexed"],
    tree: LabelTree,
    vectors: Float32[np.ndarray, "batch dim"],
) -> Sequence[Source]:
    """Return the sources of corrected scores.

    A score is the inner product of query and indexed vector, rounded to float32, plus log p_n(y|x),
    rounded to float32, and that sum again.

    Args:
        index: Label vectors.
        queries: What they are multiplied with.
        tree: Over all labels that are indexed at least.
        vectors: The same documents, as the tree reads them.

    Raises:
        DataError: A vector is not finite.
    """
    products = InnerProductSource(index, queries)
    if len(index) == 0:
        return [products]  # there is nothing to correct
    if scores_all(len(index), len(index), by_matrix=True):
        return [CorrectedSource(index, queries, tree, vectors)]
    return [products, TreeSource(tree, vectors)]


class CorrectedSource:
    """The `Source` of corrected scores, which scores all labels."""

    def __init__(
        self,
        index: InnerProductIndex,
        queries: Float32[np.ndarray, "batch indexed"],
        tree: LabelTree,
        vectors: Float32[np.ndarray, "batch dim"],
    ) -> None:
        """Bind the documents to index and tree; the arguments are those of `corrected_sources`.

        Raises:
            DataError: A vector is not finite.
        """
        assert len(index)
        self._index = index
        self._queries = queries
        self._tree = tree
        self._corrections = TreeSource(tree, vectors)

    @property
    def num_queries(self) -> int:
        """Rows of the batch."""
        return len(self._queries)

    @property
    def num_labels(self) -> int:
        """Number of indexed labels."""
        return len(self._index)

    def top(self, rows: Int64[np.ndarray, row], m: int) -> Ranking:
        """Return the m best labels of these queries (see `Source.top`).

        A float32 matrix product proposes: labels that come so near the m-th best total that
        rounding may explain the difference are scored again, as everywhere.
        """
        best = nothing(len(rows), m)
        for part in row_parts(len(rows), len(self._index), MAX_PRODUCTS):
            self._rank_part(rows[part], best.labels[part], best.scores[part])
        return best

    def score(
        self, rows: Int64[np.ndarray, row], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the scores of given labels (see `Source.score`)."""
        products = self._index.score(self._queries[rows], labels)
        scores: Float32[np.ndarray, "row m"] = products + self._corrections.score(rows, labels)
        return scores

    def _rank_part(
        self,
        rows: Int64[np.ndarray, part],
        labels: Int64[np.ndarray, "part m"],
        scores: Float32[np.ndarray, "part m"],
    ) -> None:
        """Write the best labels of some documents and their scores."""
        features = self._corrections.features_of(rows)
        corrections = self._tree.log_probs(features).cpu().numpy()[:, self._index.labels]
        products, margins = self._index.products(self._queries[rows])
        totals = products + corrections  # (part, indexed)
        m = min(labels.shape[1], len(self._index))
        least = np.partition(totals, -m, axis=1)[:, -m]
        # Either sum is rounded once more, by at most 2^-24 of itself.
        slack = 2 * margins + np.abs(totals).max(axis=1, initial=0) * np.float32(2**-22)
        for i, is_near in enumerate(totals >= (least - slack)[:, None]):
            near = np.flatnonzero(is_near)[None]
            candidates = self._index.labels[near]
            exact = self._index.score(self._queries[rows[i : i + 1]], candidates)
            top = top_of_candidates(candidates, exact + corrections[i][near], labels.shape[1])
            labels[i], scores[i] = top.labels[0], top.scores[0]
