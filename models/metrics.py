"""Ranking metrics of extreme classification: P, nDCG, PSP, PSnDCG, R, RP and macro-F1 at k.

The definitions are those of the Extreme Classification Repository's scripts (pyxclib), RP@k of
Chalkidis et al. 2019 and macro-F1@k of DEPL, 2023, section 5.2. `join_truth` lays a ranking beside
the truth and checks both once; every metric is a function of what it returns. All values are
fractions.

A document without a true label counts as 0 in every mean, as in pyxclib. No metric is ever nan.

Hierarchical precision and recall forgive near misses (Kiritchenko, Matwin, Nock, Famili 2006,
"Learning and Evaluation in the Presence of Class Hierarchies", section 4.2): with P_i the labels
that are predicted for document i and all above them, and T_i its true labels and all above them,

    hP = sum_i |P_i and T_i| / sum_i |P_i|,    hR = sum_i |P_i and T_i| / sum_i |T_i|.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from scipy.sparse import csr_array

from longtail.models.errors import DataError
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.models.scorers.propensity import propensity_weights


@dataclass(frozen=True, slots=True)
class RankedEvaluation:
    """A ranking laid beside the truth: all that a metric needs.

    Attributes:
        labels: The ranked labels, best first, padded at the end with `NO_LABEL`.
        is_hit: Whether the label at that position is a true label of the document.
        true_rows: Document of each true (document, label) pair, ascending.
        true_labels: Label of each true pair; ascending within a document.
        num_labels: Number of all labels.
    """

    labels: Int64[np.ndarray, "document k"]
    is_hit: Bool[np.ndarray, "document k"]
    true_rows: Int64[np.ndarray, pair]
    true_labels: Int64[np.ndarray, pair]
    num_labels: int

    @property
    def num_documents(self) -> int:
        """Number of documents, those without a true label included."""
        return len(self.labels)

    @property
    def num_true(self) -> Int64[np.ndarray, document]:
        """Number of true labels of each document."""
        return np.bincount(self.true_rows, minlength=self.num_documents).astype(np.int64)

    @property
    def num_documents_without_labels(self) -> int:
        """Number of documents that have no true label, and so count as 0 in every mean."""
        return int(np.count_nonzero(self.num_true == 0))

    def top(
        self, k: int
    ) -> tuple[Int64[np.ndarray, "document positions"], Bool[np.ndarray, "document positions"]]:
        """Return the labels of the first k positions, and whether each is a hit."""
        width = self.labels.shape[1]
        if not 1 <= k <= width:
            raise DataError(
                f"metrics: got k={k!r}, but the ranking is {width} labels wide; "
                f"rank at least k labels, or ask for k between 1 and {width}"
            )
        return self.labels[:, :k], self.is_hit[:, :k]

    def restricted_to(self, is_in_subset: Bool[np.ndarray, label]) -> RankedEvaluation:
        """Keep only the true labels of a subset, and the documents that have at least one of them.

        The ranking stays as it is, over all labels: a label outside the subset takes its place in
        the top k and can't be a hit.
        """
        is_kept_pair = is_in_subset[self.true_labels]
        rows = self.true_rows[is_kept_pair]
        is_kept_row = np.zeros(self.num_documents, dtype=np.bool_)
        is_kept_row[rows] = True
        new_row = np.cumsum(is_kept_row, dtype=np.int64) - 1
        labels = self.labels[is_kept_row]
        # `NO_LABEL` reads the last label's entry here, but is never a hit.
        is_hit = self.is_hit[is_kept_row] & is_in_subset[labels]
        true_labels = self.true_labels[is_kept_pair]
        return RankedEvaluation(labels, is_hit, new_row[rows], true_labels, self.num_labels)


def join_truth(
    labels: Int64[np.ndarray, "row k"], truth: Float32[csr_array, "document label"]
) -> RankedEvaluation:
    """Lay ranked labels beside the truth, after checking both.

    Args:
        labels: Label indices of each document, best first, distinct, padded at the end with
            `NO_LABEL`.
        truth: Ones where the document carries the label.
    """
    num_documents, num_labels = truth.shape
    if num_documents == 0 or num_labels == 0:
        raise DataError(
            f"metrics: got {num_documents} documents and {num_labels} labels to measure on; "
            "give at least one of each"
        )
    if len(labels) != num_documents:
        raise DataError(
            f"metrics: the ranking has {len(labels)} rows, the truth {num_documents}; "
            "rank exactly the documents of the truth, in their order"
        )
    _check_ranked_labels(labels, num_labels)
    true_pairs = _true_pairs(truth)
    ranked_pairs = np.arange(num_documents)[:, None] * num_labels + labels
    found = np.searchsorted(true_pairs, ranked_pairs)
    sentinel = np.append(true_pairs, -1)
    is_hit = (labels != NO_LABEL) & (sentinel[found] == ranked_pairs)
    true_rows, true_labels = np.divmod(true_pairs, num_labels)
    return RankedEvaluation(labels, is_hit, true_rows, true_labels, num_labels)


def _check_ranked_labels(labels: Int64[np.ndarray, "document k"], num_labels: int) -> None:
    if labels.size and not (labels.min() >= NO_LABEL and labels.max() < num_labels):
        wrong = labels[(labels < NO_LABEL) | (labels >= num_labels)][0]
        raise DataError(
            f"metrics: the ranking names label {int(wrong)!r}, the truth has {num_labels} labels; "
            "rank with the label catalogue that the truth was made with"
        )
    is_padding = labels == NO_LABEL
    if (is_padding[:, :-1] & ~is_padding[:, 1:]).any():
        raise DataError("metrics: a ranking has a label after NO_LABEL; put all padding at the end")
    ordered = np.sort(labels, axis=1)
    is_twice = (ordered[:, :-1] == ordered[:, 1:]) & (ordered[:, 1:] != NO_LABEL)
    if is_twice.any():
        row = int(np.flatnonzero(is_twice.any(axis=1))[0])
        raise DataError(
            f"metrics: row {row} of the ranking names a label twice; labels of a row "
            "must be distinct"
        )


def _true_pairs(truth: Float32[csr_array, "document label"]) -> Int64[np.ndarray, pair]:
    # document * num_labels + label of each true pair, ascending
    num_documents, num_labels = truth.shape
    rows = np.repeat(np.arange(num_documents, dtype=np.int64), np.diff(truth.indptr))
    pairs = np.sort(rows * num_labels + truth.indices)
    if not (truth.data == 1).all() or (pairs[1:] == pairs[:-1]).any():
        raise DataError(
            "metrics: the truth has other values than 1, or the same pair twice; expected a single "
            "1 for each label of a document"
        )
    return pairs


def inverse_propensities(
    training_counts: Int64[np.ndarray, label], num_training_documents: int
) -> Float64[np.ndarray, label]:
    """Inverse propensity of each label (Jain et al. 2016, section 4; see `propensity_weights`).

    Args:
        training_counts: N_l, the number of training documents that carry each label; 0 is allowed.
        num_training_documents: N; of training, not test documents.
    """
    if num_training_documents < 1:
        raise DataError(
            f"propensities: got {num_training_documents!r} training documents, expected at least 1"
        )
    if training_counts.size and not 0 <= training_counts.min() <= training_counts.max() <= (
        num_training_documents
    ):
        raise DataError(
            f"propensities: got training counts from {training_counts.min()} to "
            f"{training_counts.max()}, expected 0 to {num_training_documents} (the number of "
            "training documents); count each label once a training document"
        )
    return propensity_weights(training_counts, num_training_documents)


def precision_at(joined: RankedEvaluation, k: int) -> float:
    """P@k: mean share of true labels among the first k positions (padding counts as a miss)."""
    hits = _num_hits(joined, k)
    return _mean_ratio(hits, np.full_like(hits, k))


def recall_at(joined: RankedEvaluation, k: int) -> float:
    """R@k: mean share of a document's true labels that are among the first k positions."""
    return _mean_ratio(_num_hits(joined, k), joined.num_true)


def r_precision_at(joined: RankedEvaluation, k: int) -> float:
    """RP@k: mean of hits / min(k, number of true labels) (Chalkidis et al. 2019, section 5)."""
    return _mean_ratio(_num_hits(joined, k), np.minimum(k, joined.num_true))


def ndcg_at(joined: RankedEvaluation, k: int) -> float:
    """nDCG@k with discount log2(position + 1), over the best possible for the document's labels."""
    _, is_hit = joined.top(k)
    gains = is_hit @ _discounts(k)
    return _mean_ratio(gains, _ideal_gains(joined, k))


def propensity_scored_precision_at(
    joined: RankedEvaluation, k: int, weights: Float64[np.ndarray, label]
) -> float:
    """PSP@k: weighted hits over the best attainable, each summed over all documents.

    A ratio of means over the test set, not a mean of ratios (pyxclib). The best attainable takes
    the k largest weights among the true labels of each document. 0 where nothing is attainable.

    Args:
        joined: The ranking beside the truth.
        k: Places that count.
        weights: Inverse propensities.
    """
    gained = _weighted_hits(joined, k, weights).sum()
    _, positions, best = _best_weights(joined, weights)
    return _ratio(gained, best[positions < k].sum())


def propensity_scored_ndcg_at(
    joined: RankedEvaluation, k: int, weights: Float64[np.ndarray, label]
) -> float:
    """PSnDCG@k: nDCG@k with weighted gains, over that of the best attainable ranking.

    Both sides are means over the documents of DCG / ideal unweighted DCG (pyxclib).

    Args:
        joined: The ranking beside the truth.
        k: Places that count.
        weights: Inverse propensities.
    """
    discounts = _discounts(k)
    ideal = _ideal_gains(joined, k)
    gains = _weighted_hits(joined, k, weights) @ discounts
    rows, positions, best = _best_weights(joined, weights)
    is_counted = positions < k
    rows, positions, best = rows[is_counted], positions[is_counted], best[is_counted]
    attainable = np.bincount(rows, best * discounts[positions], minlength=joined.num_documents)
    return _ratio(_mean_ratio(gains, ideal), _mean_ratio(attainable, ideal))


def document_values_at(
    joined: RankedEvaluation, k: int, weights: Float64[np.ndarray, label]
) -> dict[str, Float64[np.ndarray, document]]:
    """P@k, nDCG@k and PSP@k as one value a document, whose means are the metrics.

    That of PSP@k, a ratio of means, is the document's weighted hits over the mean of the best
    attainable of all documents.

    Args:
        joined: The ranking beside the truth.
        k: Places that count.
        weights: Inverse propensities.
    """
    _, is_hit = joined.top(k)
    ideal = _ideal_gains(joined, k)
    _, positions, best = _best_weights(joined, weights)
    attainable = best[positions < k].sum() / joined.num_documents
    gained = _weighted_hits(joined, k, weights).sum(axis=1)
    return {
        f"P@{k}": _num_hits(joined, k) / k,
        f"nDCG@{k}": np.divide(
            is_hit @ _discounts(k), ideal, out=np.zeros(joined.num_documents), where=ideal > 0
        ),
        f"PSP@{k}": gained / attainable if attainable > 0 else np.zeros(joined.num_documents),
    }


def label_f1_at(joined: RankedEvaluation, k: int) -> Float64[np.ndarray, label]:
    """F1@k of each label, from its contingency table over all documents (DEPL, Table 2).

    A label is predicted for a document when it is among the first k positions. F1 = 2 TP / (2 TP +
    FP + FN); it is 0 where TP is 0, so also for a label that is never predicted and never true.
    Macro-F1@k is the mean over all labels of a subset (DEPL, section 5.2): one that no test
    document carries adds 0, so its ceiling is the share of the labels that are true somewhere.
    """
    ranked, is_hit = joined.top(k)
    num_hits = np.bincount(ranked[is_hit], minlength=joined.num_labels)
    num_predicted = np.bincount(ranked[ranked != NO_LABEL], minlength=joined.num_labels)
    num_true = np.bincount(joined.true_labels, minlength=joined.num_labels)
    f1: Float64[np.ndarray, label] = 2 * num_hits / np.maximum(num_predicted + num_true, 1)
    return f1


def is_found_at(joined: RankedEvaluation, k: int) -> Bool[np.ndarray, label]:
    """Whether each label is right at least once among the first k positions.

    Coverage@k is the share of the labels that a document carries of which this is so.
    """
    ranked, is_hit = joined.top(k)
    found: Bool[np.ndarray, label] = np.bincount(ranked[is_hit], minlength=joined.num_labels) > 0
    return found


def coverage_at(joined: RankedEvaluation, k: int) -> float:
    """Coverage@k: the share of the labels in the truth that are found (see `is_found_at`)."""
    is_true = np.bincount(joined.true_labels, minlength=joined.num_labels) > 0
    return _ratio(float((is_found_at(joined, k) & is_true).sum()), float(is_true.sum()))


IN_SPLIT = "in split"
"""Follows the name of macro-F1 as the mean over the labels that a document of the split carries."""
Place: TypeAlias = Literal[
    "overall", "overall, tail", "overall, unseen", "short", "bands", "shots", "within", "compared",
    "compared, tail", "registry", "card", "card, bands", "leaderboard",
]  # fmt: skip
"""Tables that show metrics: of an evaluation, over all labels, tail labels and unseen ones, in
short, by band, for frequent, few-shot and zero-shot labels, and within each band; and others."""
_BY_FREQUENCY = ("bands", "shots", "within", "card, bands")


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of every evaluation.

    Attributes:
        value: Gives a fraction for a ranking with the truth, k and inverse propensities; None for macro-F1.
        shown: The k of its columns in each table; empty: each k that was measured.
        rank: Position of its columns in tables by frequency.
    """

    value: Callable[[RankedEvaluation, int, Float64[np.ndarray, "label"]], float] | None
    shown: Mapping[Place, tuple[int, ...]]
    rank: int = 9


METRICS: dict[str, Metric] = {
    "P": Metric(lambda joined, k, _: precision_at(joined, k), {
        "overall": (1, 3, 5), "short": (1, 5), "compared": (), "registry": (1, 3, 5),
        "card": (1, 5), "leaderboard": (1, 3, 5),
    }),
    "nDCG": Metric(lambda joined, k, _: ndcg_at(joined, k), {
        "overall": (5,), "bands": (10,), "shots": (5, 10), "within": (10,), "compared": (),
        "registry": (5,), "card": (5,), "leaderboard": (5,),
    }, rank=1),
    "PSP": Metric(propensity_scored_precision_at, {
        "overall": (1, 3, 5), "short": (5,), "bands": (5,), "compared": (), "registry": (1, 5),
        "card": (5,), "card, bands": (5,), "leaderboard": (1, 5),
    }, rank=3),
    "PSnDCG": Metric(propensity_scored_ndcg_at, {}),
    "R": Metric(lambda joined, k, _: recall_at(joined, k), {
        "overall": (10,), "overall, unseen": (10,), "bands": (10,), "shots": (5, 10),
        "within": (10,), "registry": (10,), "card": (10,), "card, bands": (10,),
        "leaderboard": (10,),
    }, rank=0),
    "RP": Metric(lambda joined, k, _: r_precision_at(joined, k), {"overall": (5,)}),
    "coverage": Metric(lambda joined, k, _: coverage_at(joined, k), {"overall": (5,)}),
    "macro-F1": Metric(None, {
        "overall, tail": (5,), "bands": (5,), "compared": (), "compared, tail": (),
        "card, bands": (5,), "leaderboard": (5,),
    }, rank=2),
    f"macro-F1 {IN_SPLIT}": Metric(None, {
        "overall, tail": (5,), "bands": (5,), "compared": (), "compared, tail": (),
    }, rank=2),
}  # fmt: skip
"""The metrics by name, in the order of their columns. A new one, put here, is measured by each
evaluation and is in the tables that it names."""


def at(name: str, k: int) -> str:
    """Return the name of a metric at k: "P@5"."""
    return re.sub(r"$|(?= )", f"@{k}", name, count=1)


def shown_in(place: Place, ks: Sequence[int] = ()) -> list[str]:
    """Return the columns of a table; where `ks` are given, each with the largest k up to its own.

    Args:
        place: The table.
        ks: What was measured, ascending.
    """
    shown = [(name, metric) for name, metric in METRICS.items() if place in metric.shown]
    if place in _BY_FREQUENCY:
        shown.sort(key=lambda x: x[1].rank)
    wanted = ((name, k) for name, metric in shown for k in metric.shown[place] or ks)
    return [at(name, max((x for x in ks if x <= k), default=k)) for name, k in wanted]


def _num_hits(joined: RankedEvaluation, k: int) -> Int64[np.ndarray, document]:
    _, is_hit = joined.top(k)
    return np.asarray(is_hit.sum(axis=1), dtype=np.int64)


def _weighted_hits(
    joined: RankedEvaluation, k: int, weights: Float64[np.ndarray, label]
) -> Float64[np.ndarray, "document positions"]:
    """Weight of each of the first k labels where it is a hit, else 0."""
    labels, is_hit = joined.top(k)
    # `NO_LABEL` reads the last label's weight, but is never a hit.
    weighted: Float64[np.ndarray, "document positions"] = is_hit * weights[labels]
    return weighted


def _discounts(k: int) -> Float64[np.ndarray, k]:
    by_position: Float64[np.ndarray, k] = 1 / np.log2(np.arange(k) + 2)
    return by_position


def _ideal_gains(joined: RankedEvaluation, k: int) -> Float64[np.ndarray, document]:
    ideal = np.concatenate([[0.0], np.cumsum(_discounts(k))])
    best: Float64[np.ndarray, document] = ideal[np.minimum(joined.num_true, k)]
    return best


def _best_weights(
    joined: RankedEvaluation, weights: Float64[np.ndarray, label]
) -> tuple[Int64[np.ndarray, pair], Int64[np.ndarray, pair], Float64[np.ndarray, pair]]:
    """Rows, positions within the row (from 0) and weights of the true labels, heaviest first."""
    of_pair = weights[joined.true_labels]
    order = np.lexsort((-of_pair, joined.true_rows))
    starts = np.cumsum(joined.num_true) - joined.num_true
    positions = np.arange(len(order)) - starts[joined.true_rows]
    return joined.true_rows, positions, of_pair[order]


def _mean_ratio(
    above: Float64[np.ndarray, document] | Int64[np.ndarray, document],
    below: Float64[np.ndarray, document] | Int64[np.ndarray, document],
) -> float:
    """Mean over documents of above / below; 0 where below is 0, and where there is no document."""
    ratios = np.divide(above, below, out=np.zeros(len(above)), where=below > 0)
    return float(ratios.mean()) if ratios.size else 0.0


def _ratio(above: float, below: float) -> float:
    return float(above / below) if below > 0 else 0.0


Hierarchical: TypeAlias = dict[str, dict[str, float]]
"""Fractions by scorer, by "hP@k" and "hR@k"."""


def measure_hierarchical(
    rankings: Mapping[str, Ranking],
    truth: Float32[csr_array, "document label"],
    ancestors: Float32[csr_array, "label label"],
    ks: Sequence[int],
) -> Hierarchical:
    """Return hierarchical precision and recall of each scorer at each k.

    Args:
        rankings: The best labels of each document, by scorer.
        truth: The labels of each document.
        ancestors: 1 for each label itself and for all above it (`LabelHierarchy.ancestors`).
        ks: At most the width of each ranking.
    """
    true = _present(truth @ ancestors)
    return {
        scorer: {
            name: value for k in ks for name, value in _at(ranking, true, ancestors, k).items()
        }
        for scorer, ranking in rankings.items()
    }


def _at(
    ranking: Ranking,
    true: Float32[csr_array, "document label"],
    ancestors: Float32[csr_array, "label label"],
    k: int,
) -> dict[str, float]:
    top = ranking.labels[:, :k]
    rows, places = np.nonzero(top != NO_LABEL)
    ones = np.ones(len(rows), dtype=np.float32)
    found = csr_array((ones, (rows, top[rows, places])), shape=true.shape)
    predicted = _present(found @ ancestors)
    num_common = float(predicted.multiply(true).sum())
    return {
        f"hP@{k}": num_common / max(predicted.nnz, 1),
        f"hR@{k}": num_common / max(true.nnz, 1),
    }


def _present(counts: csr_array) -> Float32[csr_array, "document label"]:
    counts.eliminate_zeros()
    counts.data = np.ones(len(counts.data), dtype=np.float32)
    return counts
