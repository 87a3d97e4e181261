"""Blends of the sparse model with sources that list few labels of a text, ranked by one pass.

A label that no list has is scored by the sparse model alone: its blend is the sparse score's
calibrated log-odds times a weight, plus a constant, both of the label. One compiled pass computes
that for all labels and finds the k-th largest. Each better label, and each listed one, is then
scored as the Threshold Algorithm scores it (`combined_scores`), so that both give the same bits;
only the number of labels looked at differs. The pass bounds from below what the blend gives, as it
rises with each score, so no label is missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from longtail.models.labels.selection import Selection
from longtail.models.memory.source import NeighbourSource
from longtail.models.native.library import (
    BOOL,
    F32,
    F64,
    FLOAT,
    I64,
    INT,
    Grown,
    RecordOf,
    function,
    taken,
)
from longtail.models.ranking.exhaustive import row_parts, scores_all
from longtail.models.ranking.listed import ListedSource
from longtail.models.ranking.threshold_algorithm import (
    Combination,
    Sources,
    combined_scores,
    first_round,
)
from longtail.models.ranking.top_k import (
    NO_LABEL,
    Ranking,
    nothing,
    top_of_candidates,
    without_repeats,
)
from longtail.models.scorers.blending import DialledBlend, FittedBlend
from longtail.models.scorers.sparse import SparseSource

_MAX_VALUES = 2**21
"""Of labels of several texts, that are held at a time: 16 MiB."""
_SLACK = 1e-6
"""By this share a score may differ from its pass: float32 rounds by 6e-8 of it."""


class _Line(NamedTuple):
    """The blend of each label as a broken line of its sparse score: `line_blend` of `ranking.c`."""

    base: Float64[np.ndarray, covered]
    weights: Float64[np.ndarray, covered]
    knots: Float64[np.ndarray, knot]
    at_knots: Float64[np.ndarray, knot]
    slopes: Float64[np.ndarray, piece]
    floor: float
    num_knots: int


_LINE = RecordOf(
    base=F64, weights=F64, knots=F64, at_knots=F64, slopes=F64, floor=FLOAT, num_knots=INT
)
_scan = function("scan", F32, INT, F32, BOOL, INT, _LINE, INT, FLOAT, F64, I64, I64)


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
    num_candidates = num_labels if selection is None else len(selection)
    if scores_all(num_candidates, num_labels) or any(len(each) != 1 for each in scorers):
        return None
    members = [each for (each,) in scorers]
    listing = [each for each in members if isinstance(each, (ListedSource, NeighbourSource))]
    places = [i for i, each in enumerate(members) if isinstance(each, SparseSource)]
    if len(places) != 1 or len(listing) + 1 != len(members):
        return None
    sparse = members[places[0]]
    assert isinstance(sparse, SparseSource)
    values_of = _Pass(sparse, combine, places[0], selection)
    best, is_exact = nothing(sparse.num_queries, k), np.zeros(sparse.num_queries, dtype=np.bool_)
    if selection is None:  # most texts of some corpora are done by this, which costs less
        best, is_exact = first_round(scorers, combine, k)
    left = np.flatnonzero(~is_exact).astype(np.int64)
    for part in row_parts(len(left), len(sparse.labels), _MAX_VALUES):
        rows = left[part]
        named = [each.top(rows, each.most_listed(rows)).labels for each in listing]
        labels = without_repeats(np.concatenate([values_of.candidates(rows, k), *named], axis=1))
        if selection is not None:
            labels[~selection.is_selected[labels]] = NO_LABEL
        scores = combined_scores(scorers, combine, rows, labels)
        top = top_of_candidates(labels, scores, k)
        best.labels[rows], best.scores[rows] = top.labels, top.scores
    return best


class _Pass:
    """The blend of labels that only the sparse model scores, for one batch."""

    def __init__(
        self, source: SparseSource, combine: DialledBlend, member: int, selection: Selection | None
    ) -> None:
        assert isinstance(combine.blend, FittedBlend)
        self._source = source
        alone = combine.blend.alone(member)
        labels = source.labels
        base = alone.base[labels]
        self._slack = _SLACK
        if combine.tail_dial:
            raised = combine.tail_dial * combine.blend.log_priors[labels].astype(np.float64)
            base = base - raised
            self._slack += _SLACK * float(np.abs(raised).max(initial=0)) * 2.0**-10
        line = _Line(base, alone.weights[labels], *alone.line, num_knots=len(alone.line[0]))
        self._blend = _LINE(line)
        is_allowed = np.ones(len(labels), dtype=np.bool_)
        self._is_allowed = is_allowed if selection is None else selection.is_selected[labels]

    def candidates(self, rows: Int64[np.ndarray, row], k: int) -> Int64[np.ndarray, "row m"]:
        """Return labels among which the k best are of those that no list has."""
        sums = np.ascontiguousarray(self._source.sums(rows))
        num_labels = len(self._is_allowed)
        counts, found = np.empty(len(rows), dtype=np.int64), np.zeros((1, 2), dtype=np.int64)
        k = min(k, num_labels)
        scratch = np.empty(num_labels + k)
        given = (self._source.bias, self._is_allowed, num_labels, self._blend, k, self._slack)
        _scan(sums, len(rows), *given, scratch, counts, found)
        (places,) = taken(found, [Grown(np.int64)])
        labels = np.full((len(rows), int(counts.max(initial=0))), NO_LABEL, dtype=np.int64)
        labels[np.arange(labels.shape[1]) < counts[:, None]] = self._source.labels[places]
        return labels
