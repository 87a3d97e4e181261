"""Probabilities by how often a label was seen, fitted on the best labels of the dev split.

One curve for all labels says too much of some bands and too little of others: nearly all right
answers are of frequent labels, and the order of a blend lifts rare ones. The line of each knot is
drawn towards its neighbours', and all towards no change: bands have few right labels on dev.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import block_diag

from longtail.models.bundle.manifest import Calibration, RarityLine
from longtail.models.scorers.blending import knot_shares
from longtail.models.scorers.calibration import log_odds_of
from longtail.training.calibration.blends import COUNTS
from longtail.training.calibration.fit import rounded
from longtail.training.calibration.minimum import logistic_regression
from longtail.training.calibration.scored_pairs import ScoredPairs

_NUM_BEST = 10
"""Labels of a document that count: few of the others are ever shown."""
_SMOOTHNESS = 10.0
_RIDGE = 4.0
"""Weights of the squared difference of neighbouring knots and of the squared distance of a factor
from 1, in pairs."""
_LEAST_FACTOR = 0.05


def with_rarity(pairs: ScoredPairs, scorer: str, calibration: Calibration) -> Calibration:
    """Return a calibration whose probabilities hold of labels of any number of documents.

    Args:
        pairs: Of the dev split.
        scorer: One of those that scored them; it scored at least one.
        calibration: Of all its labels.
    """
    scores = np.where(pairs.is_scored(scorer), pairs.scores[scorer], -np.inf)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :_NUM_BEST]
    scores, counts, is_true = (
        np.take_along_axis(each, best, axis=1) for each in (scores, pairs.counts, pairs.is_true)
    )
    is_there = ~np.isneginf(scores)
    log_odds, counts, is_true = (
        each[is_there] for each in (log_odds_of(calibration, scores), counts, is_true)
    )
    most = int(counts.max())
    knots = tuple(x for i, x in enumerate(COUNTS) if i == 0 or COUNTS[i - 1] < most)
    shares = knot_shares(counts, knots)  # (pair, knot)
    steps = np.diff(np.eye(len(knots)), axis=0)
    smooth = _SMOOTHNESS * steps.T @ steps
    found = logistic_regression(
        np.hstack([shares, shares * log_odds[:, None]]),
        is_true,
        np.zeros(2 * len(knots)),
        np.repeat([-np.inf, _LEAST_FACTOR - 1], len(knots)),
        offset=log_odds,
        penalty=block_diag(smooth, smooth + _RIDGE * np.eye(len(knots))),
    )
    shifts, factors = found.reshape(2, -1)
    line = RarityLine(
        knots, tuple(map(rounded, shifts)), tuple(rounded(1 + each) for each in factors)
    )
    return replace(calibration, rarity=line)
