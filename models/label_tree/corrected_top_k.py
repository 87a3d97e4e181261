"""Exact top-k labels by inner product plus log p_n of a label tree (Bamler & Mandt 2020, Eq. 5).

Two ways, which give the same labels and scores, to the bit. One scores all labels: a matrix product
and log p_n of every leaf. The other is certified after it has scored few labels: the Threshold
Algorithm over the index and the tree's best-first search, which need not look at the other leaves.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float32, Int64

from models.label_tree.search import TreeSource
from models.label_tree.tree import LabelTree
from models.ranking.index import InnerProductIndex, InnerProductSource
from models.ranking.top_k import Ranking, rank, top_of_candidates

_SCORE_ALL_UP_TO = 5_000  # labels; see tests/bench/corrected_ranking.py
_MOST_SCORES = 2**22  # held at a time where all labels are scored


def rank_corrected(
    index: InnerProductIndex,
    queries: Float32[np.ndarray, "batch indexed"],
    tree: LabelTree,
    vectors: Float32[np.ndarray, "batch dim"],
    k: int,
) -> Ranking:
    """Return the k labels with the largest corrected scores.

    A score is the inner product of query and indexed vector, rounded to float32, plus log p_n(y|x),
    rounded to float32, and that sum again. Ties: the smaller label index first.

    Args:
        index: Label vectors.
        queries: What they are multiplied with.
        tree: Over all labels that are indexed at least.
        vectors: The same documents, as the tree reads them.
        k: Labels wanted a document, at least 1.

    Raises:
        DataError: A vector is not finite.
    """
    if len(index) <= _SCORE_ALL_UP_TO:
        return rank_all(index, queries, tree, vectors, k)
    return rank([InnerProductSource(index, queries), TreeSource(tree, vectors)], k)


def rank_all(
    index: InnerProductIndex,
    queries: Float32[np.ndarray, "batch indexed"],
    tree: LabelTree,
    vectors: Float32[np.ndarray, "batch dim"],
    k: int,
) -> Ranking:
    """Return what `rank_corrected` does, by scoring all labels.

    A float32 matrix product proposes: labels that come so near the k-th best total that rounding
    may explain the difference are scored again, as everywhere.
    """
    best = Ranking(
        labels=np.empty((len(queries), k), dtype=np.int64),
        scores=np.empty((len(queries), k), dtype=np.float32),
    )
    num_parts = len(queries) * len(index) // _MOST_SCORES + 1
    for rows in np.array_split(np.arange(len(queries)), num_parts):
        _rank_part(index, queries[rows], tree, vectors[rows], rows, best)
    return best


def _rank_part(
    index: InnerProductIndex,
    queries: Float32[np.ndarray, "part indexed"],
    tree: LabelTree,
    vectors: Float32[np.ndarray, "part dim"],
    rows: Int64[np.ndarray, part],
    best: Ranking,
) -> None:
    """Write the best labels of some documents to these rows."""
    features = tree.project(torch.from_numpy(vectors).to(tree.weights.device))
    corrections = tree.log_probs(features).cpu().numpy()[:, index.labels]
    products, margins = index.products(queries)
    totals = products + corrections
    k_found = min(best.labels.shape[1], len(index))
    least = np.partition(totals, -k_found, axis=1)[:, -k_found]
    # Either sum is rounded once more, by at most 2^-24 of itself.
    slack = 2 * margins + np.abs(totals).max(axis=1, initial=0) * np.float32(2**-22)
    for i, is_near in enumerate(totals >= (least - slack)[:, None]):
        found = np.flatnonzero(is_near)[None]
        labels = index.labels[found]
        exact = index.score(queries[i : i + 1], labels) + corrections[i][found]
        found_best = top_of_candidates(labels, exact, best.labels.shape[1])
        best.labels[rows[i]], best.scores[rows[i]] = found_best.labels[0], found_best.scores[0]
