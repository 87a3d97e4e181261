"""Blends of the sparse model with sources that list few labels of a text, ranked by one pass.

A text says nothing of most labels: no list has them, and their sparse score is so low that the
blend takes its floor instead. Their order is known before the text comes, so only the best of them
are looked at; all other labels are scored, as `combined_scores` scores them, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Bool

from longtail.models.labels.selection import Selection
from longtail.models.memory.source import NeighbourSource
from longtail.models.native.library import BOOL, CSR, F32, FLOAT, I64, INT, function
from longtail.models.ranking.threshold_algorithm import Combination, Sources
from longtail.models.ranking.top_k import ListedSource, Ranking, in_row_parts, nothing
from longtail.models.scorers.blending import BLEND, CLASSIFIERS, DialledBlend, FittedBlend
from longtail.models.scorers.sparse import NO_SUMS, SparseSource

_rank = function(
    "blend_rank", of=BLEND, sparse=CLASSIFIERS, features=CSR,
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
    classifiers = blend.classifiers(sparse, places[0], is_ordered=not combine.tail_dial)
    is_allowed = _all(num_labels) if selection is None else selection.is_selected
    best = nothing(sparse.num_queries, k)

    def rank_part(part: slice) -> None:
        tops = [each.listed(part) for each in lists.values()] or [
            nothing(len(best.labels[part]), 0)
        ]
        widths = [top.labels.shape[1] for top in tops]
        member_of = np.repeat(np.fromiter(lists or [0], dtype=np.int64), widths)
        labels = np.concatenate([top.labels for top in tops], axis=1)
        scores = np.concatenate([top.scores for top in tops], axis=1)
        sums = NO_SUMS if sparse.sums is None else sparse.sums.take(part)
        _rank(
            blend.arrays, classifiers, sparse.features(part), sums.values, sums.places,
            len(sums.places), labels, scores, member_of, len(member_of), is_allowed, num_labels,
            combine.tail_dial, k, best.labels[part], best.scores[part],
        )  # fmt: skip

    in_row_parts(rank_part, sparse.num_queries, sparse.num_threads, sparse.rows_a_part)
    return best


@lru_cache(maxsize=8)
def _all(num_labels: int) -> Bool[np.ndarray, label]:
    """Return that every label is allowed."""
    return np.ones(num_labels, np.bool_)
