"""Blends of the sparse model with sources that list few labels of a text, ranked by one pass.

A text says nothing of most labels: no list has them, and their sparse score is so low that the
blend takes its floor instead. Their order is known before the text comes, so only the best of them
are looked at; all other labels are scored, as `combined_scores` scores them, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from longtail.models.labels.selection import Selection
from longtail.models.memory.source import NeighbourSource
from longtail.models.native.library import BOOL, CSR, F32, FLOAT, I64, INT, Csr, RecordOf, function
from longtail.models.ranking.threshold_algorithm import Combination, Sources
from longtail.models.ranking.top_k import NO_LABEL, ListedSource, Ranking, in_row_parts, nothing
from longtail.models.scorers.blending import BLEND, DialledBlend, FittedBlend
from longtail.models.scorers.sparse import NO_SUMS, SparseSource


class _Classifiers(NamedTuple):
    """The sparse member: `classifiers` of `blend.c`."""

    weights: Csr
    bias: Float32[np.ndarray, covered]
    labels: Int64[np.ndarray, covered]
    at_floor: Float32[np.ndarray, covered]
    order: Int64[np.ndarray, ordered]
    num_covered: int
    num_ordered: int
    member: int


_CLASSIFIERS = RecordOf(
    "classifiers", weights=CSR, bias=F32["num_covered"], labels=I64["num_covered"],
    at_floor=F32["num_covered"], order=I64["num_ordered"], num_covered=INT, num_ordered=INT,
    member=INT,
)  # fmt: skip
_rank = function(
    "blend_rank", of=BLEND, sparse=_CLASSIFIERS, features=CSR,
    sums=F32["place covered"], places=I64["num_places"], num_places=INT,
    listed=I64["features.num_rows width"], listed_scores=F32["features.num_rows width"],
    member_of=I64["width"], width=INT, is_allowed=BOOL["num_labels"], num_labels=INT,
    tail_dial=FLOAT, k=INT, labels=I64.out["features.num_rows k"],
    scores=F32.out["features.num_rows k"],
)  # fmt: skip


def scan(
    scorers: Sequence[Sources],
    combine: Combination,
    k: int,
    num_labels: int,
    selection: Selection | None = None,
) -> Ranking | None:
    """Return what `rank` returns, to the bit; None where `rank` has to do it.

    Args:
        scorers: As for `rank`; exactly one has to be a `SparseSource`, all others list labels.
        combine: As for `rank`; has to be a `DialledBlend` of a `FittedBlend`.
        k: As for `rank`.
        num_labels: As for `rank`.
        selection: As for `rank`.
    """
    if not isinstance(combine, DialledBlend) or not isinstance(combine.blend, FittedBlend):
        return None
    members = [each[0] for each in scorers]
    places = [i for i, each in enumerate(members) if isinstance(each, SparseSource)]
    lists = {
        i: each
        for i, each in enumerate(members)
        if isinstance(each, (ListedSource, NeighbourSource))
    }
    is_simple = all(len(each) == 1 for each in scorers) and len(places) == 1
    if not is_simple or len(lists) + 1 != len(members):
        return None
    sparse, blend = members[places[0]], combine.blend
    assert isinstance(sparse, SparseSource)
    at_floor, order = sparse.bias, np.empty(0, dtype=np.int64)
    if not combine.tail_dial:  # it changes the order, so that all labels are scored
        at_floor, order = blend.at_floor(sparse.labels)
    sizes = (len(sparse.labels), len(order))
    arrays = (sparse.weights, sparse.bias, sparse.labels, at_floor, order)
    classifiers = _CLASSIFIERS(_Classifiers(*arrays, *sizes, places[0]))
    is_allowed = np.ones(num_labels, np.bool_) if selection is None else selection.is_selected
    best = nothing(sparse.num_queries, k)

    def rank_part(part: slice) -> None:
        rows = np.arange(sparse.num_queries, dtype=np.int64)[part]
        tops = [each.listed(rows) for each in lists.values()]
        widths = [top.labels.shape[1] for top in tops]
        member_of = np.repeat(np.fromiter(lists, dtype=np.int64), widths)
        labels, scores = np.full((len(rows), 0), NO_LABEL), np.zeros((len(rows), 0), np.float32)
        if tops:
            labels = np.concatenate([top.labels for top in tops], axis=1)
            scores = np.concatenate([top.scores for top in tops], axis=1)
        sums = NO_SUMS if sparse.sums is None else sparse.sums.take(rows)
        _rank(
            blend.arrays, classifiers, sparse.features(part), sums.values, sums.places,
            len(sums.places), labels, scores, member_of, len(member_of), is_allowed, num_labels,
            combine.tail_dial, k, best.labels[part], best.scores[part],
        )  # fmt: skip

    in_row_parts(rank_part, sparse.num_queries, sparse.num_threads, sparse.rows_a_part)
    return best
