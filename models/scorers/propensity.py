"""Labels ranked by their probability times their inverse propensity (Jain et al. 2016).

That is best for PSP@k. The gain rises with the score of a label, so
`longtail.models.ranking.threshold_algorithm` ranks by it exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32, Float64, Int64
from scipy.special import expit

from longtail.models.bundle.manifest import Calibration
from longtail.models.labels.selection import Selection
from longtail.models.ranking.threshold_algorithm import Combination
from longtail.models.scorers.calibration import by_rarity, log_odds_of, most_by_rarity

_A, _B = 0.55, 1.5
"""Those of all data sets but Wikipedia and Amazon."""
_SLACK = 2.0**-40
"""By this share of the largest weight a bound is raised; rounding moves a gain by far less."""


def propensity_weights(
    training_counts: Int64[np.ndarray, label], num_training_documents: int
) -> Float64[np.ndarray, label]:
    """Return the inverse propensity of each label.

    w_l = 1 + (ln N - 1) (B + 1)^A (N_l + B)^-A (Jain et al. 2016, section 4), and 1 where fewer
    than three training documents make ln N - 1 negative.

    Args:
        training_counts: N_l.
        num_training_documents: N, at least 1.
    """
    scale = float(max(np.log(num_training_documents) - 1, 0.0) * (_B + 1) ** _A)
    weights: Float64[np.ndarray, label] = 1 + scale * (training_counts + _B) ** -_A
    return weights


@dataclass(frozen=True, slots=True)
class WeighedCombination:
    """Probability times weight of each label, from the scores of a scorer or a blend's members.

    Attributes:
        inner: Combines them to one score.
        calibration: Maps that to log-odds, of all labels alike.
        counts: Training documents of each label.
        weights: Inverse propensity of each label.
        threshold: Least probability of a label that may be ranked.
        largest: The largest weight of a label that may be ranked.
    """

    inner: Combination
    calibration: Calibration
    counts: Int64[np.ndarray, label]
    weights: Float32[np.ndarray, label]
    threshold: float
    largest: float

    def combine(
        self, scores: Float32[np.ndarray, "scorer row m"], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the gains; -inf for labels without a score or below the threshold."""
        own = self.inner.combine(scores, labels)
        log_odds = log_odds_of(self.calibration, own)
        gains = expit(log_odds) * self.weights[labels].astype(np.float64)
        true = expit(by_rarity(self.calibration, log_odds, self.counts[labels]))
        is_left_out = np.isneginf(own) | (true < self.threshold)
        return np.where(is_left_out, -np.inf, gains).astype(np.float32)

    def among(self, selection: Selection) -> WeighedCombination:
        """Return the same where only the selected labels may be returned."""
        largest = float(self.weights[selection.labels].max(initial=0))
        return replace(self, inner=self.inner.among(selection), largest=largest)

    def leading(self, depth: int) -> Int64[np.ndarray, label]:
        """Return the labels for which the bound of the scorer need not hold."""
        return self.inner.leading(depth)

    def bound(
        self, frontiers: Float32[np.ndarray, "scorer row"], depth: int
    ) -> Float32[np.ndarray, row]:
        """Return the gain of the largest weight at the bound of the score, rounded up."""
        own = self.inner.bound(frontiers, depth)
        log_odds = log_odds_of(self.calibration, own)
        gains = expit(log_odds) * (1 + _SLACK) * np.float64(self.largest)
        gains += _SLACK * max(1.0, self.largest)
        most = expit(most_by_rarity(self.calibration, log_odds)) * (1 + _SLACK)
        is_left_out = np.isneginf(own) | (most < self.threshold)
        bound = np.nextafter(gains.astype(np.float32), np.float32(np.inf))
        return np.where(is_left_out, np.float32(-np.inf), bound)
