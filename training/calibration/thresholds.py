"""The probability from which labels are worth answering, for the best micro-F1.

Published results on tagging mostly give the F1 of a set of answers, not of a ranking. Which labels
are answered is decided by one threshold for all of them, chosen on the dev split.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

from longtail.models.bundle.manifest import Calibration
from longtail.models.scorers.calibration import probabilities_of
from longtail.training.calibration.scored_pairs import ScoredPairs


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

    @classmethod
    def of(cls, threshold: float, found: float, answered: float, num_true: float) -> ThresholdF1:
        """Return the shares of these numbers of pairs: right, answered and true ones."""
        total = answered + num_true
        return cls(
            threshold,
            2 * found / total if total else 0.0,
            found / answered if answered else 0.0,
            found / num_true if num_true else 0.0,
        )


def best_threshold(pairs: ScoredPairs, scorer: str, calibration: Calibration) -> ThresholdF1 | None:
    """Return the threshold of the largest micro-F1 on these pairs; of equal ones the highest.

    Args:
        pairs: Of a dev split; its true labels are among them.
        scorer: One of those that scored them.
        calibration: What makes probabilities of its scores.

    Returns:
        None where no label is right, or none that the scorer can score.
    """
    probabilities, is_true, weights, num_true = _of(pairs, scorer, calibration)
    if not is_true.any():
        return None
    order = np.argsort(-probabilities, kind="stable")
    found = np.cumsum((is_true * weights)[order])
    answered = np.cumsum(weights[order])
    f1 = 2 * found / (answered + num_true)
    is_last = np.append(np.diff(probabilities[order]) != 0, True)  # equal ones go together
    best = int(np.flatnonzero(is_last)[f1[is_last].argmax()])
    threshold = float(probabilities[order][best])
    return ThresholdF1.of(threshold, float(found[best]), float(answered[best]), num_true)


def measure_threshold(
    pairs: ScoredPairs,
    scorer: str,
    calibration: Calibration,
    threshold: float,
    num_missed: int = 0,
) -> ThresholdF1:
    """Measure answering all labels of at least this probability.

    Args:
        pairs: Of any split; its true labels are among them.
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
    return ThresholdF1.of(threshold, found, answered, num_true)


def _of(
    pairs: ScoredPairs, scorer: str, calibration: Calibration
) -> tuple[Float64[np.ndarray, pair], Bool[np.ndarray, pair], Float64[np.ndarray, pair], float]:
    """Return probability, truth and weight of the scored pairs, and the number of true pairs."""
    scores, is_true, weights = pairs.of(scorer)
    num_true = float((pairs.weights * pairs.is_true).sum(dtype=np.float64))
    return probabilities_of(calibration, scores), is_true, weights, num_true
