"""The probability from which labels are worth answering, for the best micro-F1.

Published results on tagging mostly give the F1 of a set of answers, not of a ranking. Which labels
are answered is decided by one threshold for all of them, chosen on the dev split.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

from longtail.models.bundle.manifest import Calibration
from longtail.models.fitted.label_counts import PlaceThreshold
from longtail.models.options import AUTO_K
from longtail.models.scorers.calibration import log_odds_of
from longtail.training.calibration.scored_pairs import ScoredPairs

_RISES = (0.0, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.1, 1.5)
"""Tried as `PlaceThreshold.rise`; the first is one threshold for all labels."""


@dataclass(frozen=True, slots=True)
class ThresholdF1:
    """What answering all labels from some probability on is worth.

    All shares are fractions over all pairs of documents and labels.

    Attributes:
        threshold: The probability.
        micro_f1: 2 TP / (2 TP + FP + FN).
        precision: TP / (TP + FP), the answered labels that are right; 0 if none is answered.
        recall: TP / (TP + FN), the true labels that are answered; 0 if there are none.
    """

    threshold: float
    micro_f1: float
    precision: float
    recall: float


def best_threshold(pairs: ScoredPairs, scorer: str, calibration: Calibration) -> float | None:
    """Return the threshold of the largest micro-F1 on these pairs; of equal ones the highest.

    Args:
        pairs: Pairs of a dev split; its true labels are among them.
        scorer: One of those that scored them.
        calibration: What makes probabilities of its scores.

    Returns:
        None where no label is right, or none that the scorer can score.
    """
    probabilities, is_true, weights, num_true = _of(pairs, scorer, calibration)
    return _best(probabilities, is_true, weights, num_true)[1] if is_true.any() else None


def best_label_count(
    pairs: ScoredPairs, scorer: str, calibration: Calibration
) -> PlaceThreshold | None:
    """Return the threshold by place of the largest micro-F1 on these pairs.

    Args:
        pairs: Pairs of a dev split; its true labels are among them.
        scorer: One of those that scored them.
        calibration: What makes log-odds of its scores.

    Returns:
        None where no label is right, or none that the scorer can score.
    """
    is_scored = pairs.is_scored(scorer)
    if not (pairs.is_true & is_scored).any():
        return None
    log_odds = np.where(is_scored, log_odds_of(calibration, pairs.scores[scorer]), -np.inf)
    order = np.argsort(-log_odds, axis=1, kind="stable")[:, :AUTO_K]
    values, weights, is_true = (
        np.take_along_axis(each, order, axis=1)
        for each in (log_odds, pairs.weights.astype(np.float64), pairs.is_true)
    )
    is_in = ~np.isneginf(values)
    num_true = float((pairs.weights * pairs.is_true).sum(dtype=np.float64))
    logs = np.log(np.arange(1, values.shape[1] + 1))
    tried = [
        (_best((values - rise * logs)[is_in], is_true[is_in], weights[is_in], num_true), rise)
        for rise in _RISES
    ]
    (_, first), rise = max(tried, key=lambda each: each[0][0])
    return PlaceThreshold(first, rise)


def _best(
    values: Float64[np.ndarray, pair],
    is_true: Bool[np.ndarray, pair],
    weights: Float64[np.ndarray, pair],
    num_true: float,
) -> tuple[float, float]:
    """Return the largest micro-F1, and its least answered value; of equal ones the highest."""
    order = np.argsort(-values, kind="stable")
    found, answered = np.cumsum((is_true * weights)[order]), np.cumsum(weights[order])
    f1 = 2 * found / (answered + num_true)
    is_last = np.append(np.diff(values[order]) != 0, True)  # equal ones go together
    best = int(np.flatnonzero(is_last)[f1[is_last].argmax()])
    return float(f1[best]), float(values[order][best])


def measure_threshold(
    pairs: ScoredPairs,
    scorer: str,
    calibration: Calibration,
    threshold: float,
    num_missed: int = 0,
) -> ThresholdF1:
    """Measure answering all labels of at least this probability.

    Args:
        pairs: Pairs of any split; its true labels are among them.
        scorer: One of those that scored them.
        calibration: What makes probabilities of its scores.
        threshold: The probability.
        num_missed: True pairs that are not among them, as no scorer can answer them.
    """
    probabilities, is_true, weights, num_scored = _of(pairs, scorer, calibration)
    num_true = num_scored + num_missed
    is_answered = probabilities >= threshold
    found = float(weights[is_answered & is_true].sum())
    answered = float(weights[is_answered].sum())
    return ThresholdF1(
        threshold,
        2 * found / max(1.0, answered + num_true),
        found / max(1.0, answered),
        found / max(1.0, num_true),
    )


def _of(
    pairs: ScoredPairs, scorer: str, calibration: Calibration
) -> tuple[Float64[np.ndarray, pair], Bool[np.ndarray, pair], Float64[np.ndarray, pair], float]:
    """Return probability, truth and weight of the scored pairs, and the number of true pairs."""
    _, is_true, weights = pairs.of(scorer)
    num_true = float((pairs.weights * pairs.is_true).sum(dtype=np.float64))
    probabilities = pairs.probabilities(scorer, calibration)[pairs.is_scored(scorer)]
    return probabilities, is_true, weights, num_true
