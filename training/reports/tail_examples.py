"""Examples of rare labels that a scorer gets right and wrong: chosen by rule, not by taste."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int64
from scipy.sparse import csr_array

from longtail.models.ranking.top_k import Ranking
from longtail.training.evaluation.by_frequency import TAIL_BIN, label_subsets
from longtail.training.evaluation.metrics import join_truth

FOUND = "found"
MISSED = "missed"
WRONG = "wrong"
_TOP = 5  # that count as predicted


@dataclass(frozen=True, slots=True)
class TailExample:
    """A rare label of a document.

    Attributes:
        document: Row of the split.
        label: Row of the catalogue.
        rank: Where the label is ranked, from 1; None where it is not among the ranked ones.
        score: There; None where it has no rank.
        true_labels: All labels of the document.
        best_labels: What was predicted for it, best first.
    """

    document: int
    label: int
    rank: int | None
    score: float | None
    true_labels: tuple[int, ...]
    best_labels: tuple[int, ...]


def choose_tail_examples(
    ranking: Ranking,
    truth: Float32[csr_array, "document label"],
    training_counts: Int64[np.ndarray, label],
    count: int = 6,
) -> dict[str, list[TailExample]]:
    """Return examples of labels with 1-9 training documents, by what became of them.

    `FOUND`: true, and among the first five. `MISSED`: true, and not among the ranked labels.
    `WRONG`: among the first five, and not true. Of all such pairs, in the order of the documents
    and of the positions, each label's first one is taken, and of these some that spread evenly.

    Args:
        ranking: Of the documents.
        truth: Their labels.
        training_counts: Training documents of each label.
        count: Most examples of each kind.
    """
    joined = join_truth(ranking.labels, truth)
    is_tail = label_subsets(training_counts)[TAIL_BIN]
    num_labels = len(training_counts)
    labels, is_hit = joined.labels[:, :_TOP], joined.is_hit[:, :_TOP]
    of_tail = is_tail[labels] & (labels >= 0)
    ranked = np.arange(len(labels))[:, None] * num_labels + joined.labels
    true = joined.true_rows * num_labels + joined.true_labels
    is_missed = is_tail[joined.true_labels] & ~np.isin(true, ranked[joined.labels >= 0])
    pairs = {
        FOUND: _pairs(labels, of_tail & is_hit),
        MISSED: np.column_stack([joined.true_rows[is_missed], joined.true_labels[is_missed]]),
        WRONG: _pairs(labels, of_tail & ~is_hit),
    }
    return {
        kind: [_example(ranking, truth, *pair) for pair in _spread(found, count).tolist()]
        for kind, found in pairs.items()
    }


def _pairs(
    labels: Int64[np.ndarray, "document position"], is_chosen: Bool[np.ndarray, "document position"]
) -> Int64[np.ndarray, "pair 2"]:
    return np.column_stack([np.nonzero(is_chosen)[0], labels[is_chosen]])


def _spread(pairs: Int64[np.ndarray, "pair 2"], count: int) -> Int64[np.ndarray, "chosen 2"]:
    """Return each label's first pair, and of these at most `count` that spread evenly."""
    firsts = np.sort(np.unique(pairs[:, 1], return_index=True)[1])
    count = min(count, len(firsts))
    chosen = (2 * np.arange(count) + 1) * len(firsts) // (2 * max(count, 1))
    return pairs[firsts[chosen]]


def _example(
    ranking: Ranking, truth: Float32[csr_array, "document label"], document: int, label: int
) -> TailExample:
    positions = np.flatnonzero(ranking.labels[document] == label)
    position = int(positions[0]) if len(positions) else None
    true = truth.indices[truth.indptr[document] : truth.indptr[document + 1]]
    return TailExample(
        document=document,
        label=label,
        rank=None if position is None else position + 1,
        score=None if position is None else float(ranking.scores[document, position]),
        true_labels=tuple(sorted(true.tolist())),
        best_labels=tuple(y for y in ranking.labels[document, :_TOP].tolist() if y >= 0),
    )
