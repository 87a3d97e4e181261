"""Fitting the weight of a reviewer's scores by the rarity of the label, and its held-out gain.

The pairs are the best labels of some dev documents, scored by the model and by the reviewer. Both
are calibrated among these pairs, then blended as scorers are (see
`longtail.training.calibration.blends`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from scipy.special import log_expit

from longtail.models.errors import ConfigError
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.review.fitted import MODEL, REVIEWER, FittedReview
from longtail.models.scorers.blending import FittedBlend
from longtail.training.calibration.blends import fit_blend
from longtail.training.calibration.fit import fit_calibration
from longtail.training.calibration.scored_pairs import ScoredPairs

_FOLDS = 2
_SIGNIFICANT = 1.64
"""Standard errors of the mean gain that a reviewer must bring: one-sided, 5 %."""


@dataclass(frozen=True, slots=True)
class ReviewGain:
    """What a reviewer brings on documents that its weights were not fitted on (two folds).

    Attributes:
        nats: Mean fall of the log-loss of a document's candidates.
        standard_error: Of that mean.
        log_odds: Of the candidates, held out; -inf where there is no label.
    """

    nats: float
    standard_error: float
    log_odds: Float64[np.ndarray, "document candidate"]

    @property
    def is_significant(self) -> bool:
        """Whether the reviewer adds to the model, by chance in one of twenty cases at most."""
        return self.nats > _SIGNIFICANT * self.standard_error


def fit_review(
    pairs: ScoredPairs, counts: Int64[np.ndarray, label], scorer: str, reviewer: str
) -> FittedReview:
    """Fit the weights of the scores `MODEL` and `REVIEWER`.

    Args:
        pairs: The candidates of each document, the best first.
        counts: Training documents of each label.
        scorer: The one with the scores `MODEL`.
        reviewer: The name of the reviewer.

    Raises:
        ConfigError: No candidate is right, so that nothing can be fitted.
    """
    calibrations = {}
    for name in (MODEL, REVIEWER):
        calibration = fit_calibration(*pairs.of(name))
        if calibration is None:
            raise ConfigError("no candidate of these documents is right; give other documents")
        calibrations[name] = calibration
    blend = fit_blend(pairs, [MODEL, REVIEWER], calibrations, counts)
    num_documents, num_candidates = pairs.labels.shape
    return FittedReview(scorer, reviewer, num_candidates, num_documents, calibrations, blend)


def held_out_gain(pairs: ScoredPairs, counts: Int64[np.ndarray, label]) -> ReviewGain:
    """Return how much a reviewer adds, fitted on one half of the documents, measured on the other.

    The model's scores alone are fitted anew, too, so that the difference is the reviewer's.

    Args:
        pairs: As of `fit_review`.
        counts: As there.

    Raises:
        ConfigError: No candidate of one of the halves is right.
    """
    folds = np.arange(len(pairs.labels)) % _FOLDS
    found = {}
    for members in ((MODEL,), (MODEL, REVIEWER)):
        log_odds = np.full(pairs.labels.shape, -np.inf)
        for fold in range(_FOLDS):
            fitted_on = pairs.of_documents(np.flatnonzero(folds != fold))
            rows = np.flatnonzero(folds == fold)
            log_odds[rows] = _held_out(fitted_on, pairs.of_documents(rows), counts, members)
        found[members] = log_odds
    losses = [_losses(pairs, each) for each in found.values()]
    gains = losses[0] - losses[1]
    error = float(gains.std() / np.sqrt(len(gains)))
    return ReviewGain(float(gains.mean()), error, found[MODEL, REVIEWER])


def _held_out(
    fitted_on: ScoredPairs,
    pairs: ScoredPairs,
    counts: Int64[np.ndarray, label],
    members: Sequence[str],
) -> Float64[np.ndarray, "document candidate"]:
    review = fit_review(fitted_on, counts, "", "")
    blend = fit_blend(fitted_on, members, review.calibrations, counts)
    calibrations = [review.calibrations[name] for name in blend.weights]
    fitted = FittedBlend(blend, calibrations, counts, np.zeros(len(counts), dtype=np.float32))
    scores = np.stack([pairs.scores[name] for name in blend.weights])
    log_odds = fitted.log_odds(scores, np.maximum(pairs.labels, 0))
    return np.where(pairs.labels == NO_LABEL, -np.inf, log_odds)


def _losses(
    pairs: ScoredPairs, log_odds: Float64[np.ndarray, "document candidate"]
) -> Float64[np.ndarray, document]:
    """Return the negative log-likelihood of the candidates of each document, in nats."""
    losses = np.where(pairs.is_true, -log_expit(log_odds), -log_expit(-log_odds))
    found: Float64[np.ndarray, document] = np.where(pairs.labels == NO_LABEL, 0, losses).sum(axis=1)
    return found
