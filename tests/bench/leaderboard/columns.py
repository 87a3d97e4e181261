"""The figures of a ranking on the leaderboard: one function for every row.

Scores are taken for probabilities where all of them lie between 0 and 1. Where a ranking of the dev
split is given too, an isotonic regression of its first labels gives every row probabilities that
were fitted in the same way, and the threshold of its micro-F1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from scipy.sparse import csr_array
from sklearn.isotonic import IsotonicRegression

from longtail.models.labels.hierarchy import LabelHierarchy
from longtail.models.metrics import (
    document_values_at,
    inverse_propensities,
    join_truth,
    measure_hierarchical,
    shown_in,
)
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.training.calibration.reliability import calibration_error
from longtail.training.data.dataset import Dataset
from longtail.training.evaluation.by_frequency import ALL_LABELS, FREQUENCY_BINS, TAIL_BIN, evaluate

KS = (1, 3, 5, 10)
_PLACES = 5
OF_BANDS = ("P@5", "R@10", "nDCG@10", "PSP@5", "macro-F1@5")
MEASURES = dict.fromkeys((*FREQUENCY_BINS, TAIL_BIN), OF_BANDS) | {
    ALL_LABELS: tuple(shown_in("leaderboard"))
}
"""What a row has of each subset of the labels."""
HIERARCHICAL = ("hP@5", "hR@5")
_NUM_RESAMPLES = 1000
_INTERVAL = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class Judged:
    """What rankings of a corpus are judged by.

    Attributes:
        truth: The labels of each document of the split.
        training_counts: Training documents of each label.
        num_training_documents: N of the propensities.
        ancestors: 1 for each label itself and for all above it; None without a hierarchy.
        text_of_document: Documents with equal texts have the same number, from 0 on.
    """

    truth: Float32[csr_array, "document label"]
    training_counts: Int64[np.ndarray, label]
    num_training_documents: int
    ancestors: Float32[csr_array, "label label"] | None
    text_of_document: Int64[np.ndarray, document]

    @classmethod
    def of(cls, dataset: Dataset, split_name: str) -> Judged:
        """Read the truth of a split, and what the whole corpus says of its labels."""
        catalogue, split = dataset.catalogue, dataset.split(split_name)
        numbers: dict[int, int] = {}
        texts = [numbers.setdefault(hash(x), len(numbers)) for x in split.texts()]
        return cls(
            truth=split.scan().labels,
            training_counts=catalogue.training_counts,
            num_training_documents=dataset.split("train").scan().labels.shape[0],
            ancestors=LabelHierarchy(catalogue).ancestors() if catalogue.has_hierarchy else None,
            text_of_document=np.array(texts, dtype=np.int64),
        )


def columns_of(
    ranking: Ranking,
    judged: Judged,
    dev: tuple[Ranking, Float32[csr_array, "document label"]] | None = None,
    threshold: float | None = None,
) -> dict[str, Any]:
    """Return everything that the leaderboard tells of a ranking; shares are fractions.

    Args:
        ranking: Ranking of the documents of a split, as wide as its file.
        judged: The truth of this split.
        dev: A ranking of the dev split by the same method, and its truth.
        threshold: The probability from which on labels are answered, where dev chose one already.
    """
    first = as_wide(ranking, max(KS))
    scorer = evaluate(
        {"row": first}, judged.truth, judged.training_counts, judged.num_training_documents, KS
    ).scorers["row"]
    hierarchical = None
    if judged.ancestors is not None:
        found = measure_hierarchical({"row": first}, judged.truth, judged.ancestors, KS)
        hierarchical = {name: found["row"][name] for name in HIERARCHICAL}
    return {
        "bands": {
            subset: {name: scorer[subset].values.get(name) for name in names}
            for subset, names in MEASURES.items()
        },
        "hierarchical": hierarchical,
        "intervals": document_intervals(first, judged),
        "probabilities": probability_columns(ranking, judged.truth, dev, threshold),
    }


def as_wide(ranking: Ranking, k: int) -> Ranking:
    """Return the first k labels of a ranking, filled up with `NO_LABEL` where it has fewer."""
    missing = max(0, k - ranking.labels.shape[1])
    labels = np.pad(ranking.labels, ((0, 0), (0, missing)), constant_values=NO_LABEL)
    scores = np.pad(ranking.scores, ((0, 0), (0, missing)), constant_values=-np.inf)
    return Ranking(labels, scores).first(k)


def probability_columns(
    ranking: Ranking,
    truth: Float32[csr_array, "document label"],
    dev: tuple[Ranking, Float32[csr_array, "document label"]] | None,
    threshold: float | None,
) -> dict[str, float | None]:
    """Return ECE@5 of the scores as they are and as fitted on dev, and micro-F1.

    ECE@5 is the expected calibration error of the best five labels of each document.
    """
    scores, is_true = first_pairs(ranking, truth, _PLACES)
    is_probability = bool(len(scores)) and bool(np.all((scores >= 0) & (scores <= 1)))
    found: dict[str, float | None] = {
        "ECE@5": calibration_error(scores, is_true) if is_probability else None,
        "ECE@5, fitted on dev": None,
        "micro-F1": None,
    }
    if dev is not None:
        fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        fitted.fit(*first_pairs(*dev, _PLACES))
        found["ECE@5, fitted on dev"] = calibration_error(fitted.predict(scores), is_true)
        threshold = best_threshold(*dev)
    if threshold is not None:
        found |= {"micro-F1": micro_f1(ranking, truth, threshold)}
    return found


def first_pairs(
    ranking: Ranking, truth: Float32[csr_array, "document label"], k: int
) -> tuple[Float64[np.ndarray, pair], Bool[np.ndarray, pair]]:
    """Return the scores of the first k labels of all documents, and whether each is right."""
    joined = join_truth(ranking.labels[:, :k], truth)
    is_there = joined.labels != NO_LABEL
    return ranking.scores[:, :k][is_there].astype(np.float64), joined.is_hit[is_there]


def best_threshold(ranking: Ranking, truth: Float32[csr_array, "document label"]) -> float:
    """Return the score of the largest micro-F1 when all labels of at least it are answered."""
    scores, is_true = first_pairs(ranking, truth, ranking.labels.shape[1])
    order = np.argsort(-scores, kind="stable")
    found, answered = np.cumsum(is_true[order]), np.arange(1, len(scores) + 1)
    is_last = np.append(np.diff(scores[order]) != 0, True)  # equal ones go together
    f1 = np.where(is_last, 2 * found / (answered + truth.sum()), -1.0)
    return float(scores[order][f1.argmax()])


def micro_f1(
    ranking: Ranking, truth: Float32[csr_array, "document label"], threshold: float
) -> float:
    """Return 2 TP / (2 TP + FP + FN) when all ranked labels of at least a score are answered."""
    scores, is_true = first_pairs(ranking, truth, ranking.labels.shape[1])
    is_answered = scores >= threshold
    return float(2 * is_true[is_answered].sum() / (is_answered.sum() + truth.sum()))


def document_intervals(ranking: Ranking, judged: Judged, seed: int = 0) -> dict[str, list[float]]:
    """Return 95 % intervals by resampling texts: what another test split might have said.

    Documents with equal texts are drawn together, as they are answered alike.
    """
    sizes = np.bincount(judged.text_of_document)
    shares = np.full(len(sizes), 1 / len(sizes))
    drawn = np.random.default_rng(seed).multinomial(len(sizes), shares, size=_NUM_RESAMPLES)
    return {
        name: np.percentile(
            drawn @ np.bincount(judged.text_of_document, values) / (drawn @ sizes), _INTERVAL
        ).tolist()
        for name, values in document_values(ranking, judged).items()
    }


def document_values(
    ranking: Ranking, judged: Judged, ks: Sequence[int] = (1, 5)
) -> Mapping[str, Float64[np.ndarray, document]]:
    """Return P, nDCG and PSP at each k as one value a document."""
    weights = inverse_propensities(judged.training_counts, judged.num_training_documents)
    joined = join_truth(ranking.labels, judged.truth)
    found: dict[str, Float64[np.ndarray, document]] = {}
    for k in ks:
        found |= document_values_at(joined, k, weights)
    return found
