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

import numpy as np
from jaxtyping import Bool, Int64

from longtail.models.jit import compiled
from longtail.models.labels.selection import Selection
from longtail.models.memory.source import NeighbourSource
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
        self._line = alone.line
        self._weights, base = alone.weights[labels], alone.base[labels]
        self._slack = _SLACK
        if combine.tail_dial:
            raised = combine.tail_dial * combine.blend.log_priors[labels].astype(np.float64)
            base = base - raised
            self._slack += _SLACK * float(np.abs(raised).max(initial=0)) * 2.0**-10
        self._base = base
        is_allowed = np.ones(len(labels), dtype=np.bool_)
        self._is_allowed = is_allowed if selection is None else selection.is_selected[labels]

    def candidates(self, rows: Int64[np.ndarray, row], k: int) -> Int64[np.ndarray, "row m"]:
        """Return labels among which the k best are of those that no list has."""
        sums = self._source.sums(rows)
        values = np.empty(sums.shape, dtype=np.float64)
        least = np.empty(len(rows), dtype=np.float64)
        _scan(
            (sums, self._source.bias, self._is_allowed),
            (self._base, self._weights, self._line),
            np.empty(min(k, len(self._base)), dtype=np.float64),
            values,
            least,
        )
        least -= self._slack * (
            1 + np.abs(least, where=np.isfinite(least), out=np.zeros_like(least))
        )
        return _gathered((values >= least[:, None]) & (values > -np.inf), self._source.labels)


def _gathered(
    is_taken: Bool[np.ndarray, "row covered"], labels: Int64[np.ndarray, covered]
) -> Int64[np.ndarray, "row m"]:
    """Return the labels that are taken in each row, filled up with `NO_LABEL`."""
    rows, columns = is_taken.nonzero()
    counts = np.bincount(rows, minlength=len(is_taken))
    found = np.full((len(is_taken), int(counts.max(initial=0))), NO_LABEL, dtype=np.int64)
    starts = np.cumsum(counts) - counts
    found[rows, np.arange(len(rows)) - starts[rows]] = labels[columns]
    return found


@compiled
def _scan(scored, blended, heap, values, least):
    """Write the blend of each label of each row, and the smallest of the best `len(heap)`."""
    sums, bias, is_allowed = scored
    base, weights, (knots, at_knots, slopes, floor) = blended
    k = len(heap)
    for row in range(len(sums)):
        heap[:] = -np.inf
        for label in range(len(bias)):
            if not is_allowed[label]:
                values[row, label] = -np.inf
                continue
            score = np.float64(sums[row, label] + bias[label])
            piece = 0
            while piece < len(knots) and score > knots[piece]:
                piece += 1
            start = max(piece - 1, 0)
            evidence = at_knots[start] + slopes[piece] * (score - knots[start])
            value = base[label] + weights[label] * max(evidence, floor)
            values[row, label] = value
            if k and value > heap[0]:
                heap[0] = value
                _sink_value(heap)
        least[row] = heap[0] if k else np.inf


@compiled
def _sink_value(heap):
    """Restore the heap after its smallest value was replaced."""
    place = 0
    while True:
        smallest = place
        for below in (2 * place + 1, 2 * place + 2):
            if below < len(heap) and heap[below] < heap[smallest]:
                smallest = below
        if smallest == place:
            return
        heap[place], heap[smallest] = heap[smallest], heap[place]
        place = smallest
