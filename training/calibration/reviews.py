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

from longtail.models.bundle.manifest import Calibration, RarityBlend
from longtail.models.errors import ConfigError
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.review.fitted import MODEL, REVIEWER, FittedReview
from longtail.models.scorers.blending import FittedBlend
from longtail.training.calibration.blends import fit_blend
from longtail.training.calibration.fit import fit_calibration
from longtail.training.calibration.scored_pairs import ScoredPairs

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
    calibrations, blend = _fitted(pairs, counts, (MODEL, REVIEWER))
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
    rows = np.arange(len(pairs.labels))
    log_odds = np.full((2, *pairs.labels.shape), -np.inf)
    for found, members in zip(log_odds, ((MODEL,), (MODEL, REVIEWER)), strict=True):
        for half in (0, 1):
            calibrations, blend = _fitted(pairs.of_documents(rows[1 - half :: 2]), counts, members)
            own, priors = [calibrations[x] for x in members], np.zeros(len(counts), np.float32)
            rest = pairs.of_documents(rows[half::2])
            found[half::2] = FittedBlend(blend, own, counts, priors).log_odds(
                np.stack([rest.scores[name] for name in members]), np.maximum(rest.labels, 0)
            )
    losses = np.where(pairs.is_true, -log_expit(log_odds), -log_expit(-log_odds))
    alone, both = np.where(pairs.labels == NO_LABEL, 0, losses).sum(axis=2)
    error = float((alone - both).std() / np.sqrt(len(rows)))
    held_out = np.where(pairs.labels == NO_LABEL, -np.inf, log_odds[1])
    return ReviewGain(float((alone - both).mean()), error, held_out)


def _fitted(
    pairs: ScoredPairs, counts: Int64[np.ndarray, label], members: Sequence[str]
) -> tuple[dict[str, Calibration], RarityBlend]:
    found = {name: fit_calibration(*pairs.of(name)) for name in members}
    calibrations = {name: each for name, each in found.items() if each is not None}
    if len(calibrations) < len(found):
        raise ConfigError("no candidate of these documents is right; give other documents")
    return calibrations, fit_blend(pairs, members, calibrations, counts, tail=0.0)
