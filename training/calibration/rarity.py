"""Probabilities by how often a label was seen, fitted on the best labels of the dev split.

One curve for all labels says too much of rare ones, which the order of a blend lifts, and too
little of others. Bands have few right labels on dev, so the lines of neighbouring knots are drawn
together, and all towards no change.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import block_diag

from longtail.models.bundle.manifest import Calibration
from longtail.models.scorers.blending import knot_shares
from longtail.models.scorers.calibration import log_odds_of
from longtail.training.calibration.blends import COUNTS
from longtail.training.calibration.fit import rounded
from longtail.training.calibration.minimum import logistic_regression
from longtail.training.calibration.scored_pairs import ScoredPairs

_NUM_BEST = 10
"""Labels of a document that count: few of the others are ever shown."""
_SMOOTHNESS, _RIDGE, _LEAST_FACTOR = 10.0, 4.0, 0.05
"""Weights, in pairs, of half the squared difference of neighbouring knots, and of half the squared
distance of a factor from 1."""


def with_rarity(pairs: ScoredPairs, scorer: str, calibration: Calibration) -> Calibration:
    """Return a calibration whose probabilities hold of labels of any number of documents.

    Args:
        pairs: Of the dev split.
        scorer: One of those that scored them; it scored at least one.
        calibration: Of all its labels.
    """
    log_odds = log_odds_of(calibration, pairs.scores[scorer])
    log_odds = np.where(pairs.is_scored(scorer), log_odds, -np.inf)
    best = np.argsort(-log_odds, axis=1, kind="stable")[:, :_NUM_BEST]
    rows, places = np.nonzero(~np.isneginf(np.take_along_axis(log_odds, best, axis=1)))
    at = (rows, best[rows, places])
    known, most = log_odds[at], int(pairs.counts[at].max())
    knots = tuple(x for i, x in enumerate(COUNTS) if i == 0 or COUNTS[i - 1] < most)
    shares, size = knot_shares(pairs.counts[at], knots), len(knots)  # (pair, knot)
    steps = np.diff(np.eye(size), axis=0)
    smooth = _SMOOTHNESS * steps.T @ steps
    shifts, more = logistic_regression(
        np.hstack([shares, shares * known[:, None]]), pairs.is_true[at], np.zeros(2 * size),
        np.repeat([-np.inf, _LEAST_FACTOR - 1], size), offset=known,
        penalty=block_diag(smooth, smooth + _RIDGE * np.eye(size)),
    ).reshape(2, -1)  # fmt: skip
    factors = tuple(rounded(1 + each) for each in more)
    return replace(calibration, counts=knots, shifts=tuple(map(rounded, shifts)), factors=factors)
