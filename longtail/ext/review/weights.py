"""Fitting how much a reviewer's scores count by the rarity of the label, and its held-out gain.

The pairs are the best labels of some dev documents, scored by the model and by the reviewer. Both
are calibrated among these pairs. The model's log-odds stay as they are; what the reviewer adds to
them has a weight that is drawn towards 0, so that scores that tell nothing change no order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64, Int64
from scipy.special import log_expit

from longtail.models.errors import ConfigError
from longtail.models.fitted.review import KNOTS, MODEL, REVIEWER, FittedReview
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.scorers.blending import knot_shares
from longtail.models.scorers.calibration import log_odds_of
from longtail.training.calibration.fit import fit_calibration
from longtail.training.calibration.minimum import logistic_regression
from longtail.training.calibration.scored_pairs import ScoredPairs

_SIGNIFICANT = 1.64
"""Standard errors of the mean gain that a reviewer must bring: one-sided, 5 %."""
_LEAST_NATS = 0.01
"""The least mean gain a document; weights drawn to nearly 0 have a standard error of nearly 0."""
_RIDGE, _SMOOTHNESS = 1.0, 4.0
"""Weights of the squares of the weights, and of their differences at neighbouring knots, in true
pairs."""


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
        return self.nats > max(_LEAST_NATS, _SIGNIFICANT * self.standard_error)


def fit_review(
    pairs: ScoredPairs, counts: Int64[np.ndarray, label], scorer: str = "", reviewer: str = ""
) -> FittedReview:
    """Fit what the scores `REVIEWER` add to the scores `MODEL`.

    Args:
        pairs: The candidates of each document, the best first; those with `NO_LABEL` weigh 0.
        counts: Training documents of each label.
        scorer: The one with the scores `MODEL`.
        reviewer: The name of the reviewer.
    """
    # The model's scores are log-odds already: bends would follow the chance of few documents.
    model = fit_calibration(*pairs.of(MODEL), max_knots=0)
    own = fit_calibration(*pairs.of(REVIEWER))
    if model is None or own is None:
        raise ConfigError("no candidate of these documents is right; give other documents")
    is_there = pairs.labels != NO_LABEL
    is_true = pairs.is_true[is_there]
    any_one = np.log(is_true.sum() + 1) - np.log((~is_true).sum() + 1)
    own = replace(own, intercept=float(own.intercept - any_one))
    # The weights w, at least 0, of the log-odds model + (shares w) added.
    offset, added = (
        log_odds_of(curve, pairs.scores[name][is_there])
        for name, curve in ((MODEL, model), (REVIEWER, own))
    )
    columns = knot_shares(counts[pairs.labels[is_there]], KNOTS) * added[:, None]
    zeros, steps = np.zeros(len(KNOTS)), np.diff(np.eye(len(KNOTS)), axis=0)
    penalty = 2 * (_RIDGE * np.eye(len(KNOTS)) + _SMOOTHNESS * steps.T @ steps)
    found = logistic_regression(columns, is_true, zeros, zeros, offset=offset, penalty=penalty)
    num_documents, num_candidates = pairs.labels.shape
    sizes, weights = (num_candidates, num_documents), tuple(found.round(6).tolist())
    return FittedReview(scorer, reviewer, *sizes, model, own, weights)


def held_out_gain(pairs: ScoredPairs, counts: Int64[np.ndarray, label]) -> ReviewGain:
    """Return how much a reviewer adds, fitted on one half of the documents, measured on the other.

    Arguments and errors are those of `fit_review`.
    """
    rows = np.arange(len(pairs.labels))
    alone, both = np.empty((2, *pairs.labels.shape))
    for half in (0, 1):
        review = fit_review(pairs.of_documents(rows[1 - half :: 2]), counts)
        rest = pairs.of_documents(rows[half::2])
        given = (rest.scores[MODEL], rest.scores[REVIEWER], counts[rest.labels])
        alone[half::2] = log_odds_of(review.model_curve, given[0])
        both[half::2] = review.log_odds(*given)
    losses = [-log_expit(np.where(pairs.is_true, x, -x)).sum(axis=1) for x in (alone, both)]
    gains = losses[0] - losses[1]
    return ReviewGain(float(gains.mean()), float(gains.std() / np.sqrt(len(rows))), both)
