"""What is fitted on the dev split when all is trained: calibrations, and blends of the scorers."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np
from scipy.linalg import block_diag

from longtail.models.bundle.manifest import Calibration, RarityBlend
from longtail.models.files.typed_json import json_forms
from longtail.models.fitted.label_counts import PlaceThreshold
from longtail.models.scorers.blending import knot_shares
from longtail.models.scorers.calibration import log_odds_of
from longtail.training.calibration.blends import COUNTS, in_words
from longtail.training.calibration.fit import fit_calibration, rounded
from longtail.training.calibration.members import DevRanking, blended
from longtail.training.calibration.minimum import logistic_regression
from longtail.training.calibration.scored_pairs import ScoredPairs
from longtail.training.calibration.thresholds import best_label_count, best_threshold

logger = logging.getLogger(__name__)

_NUM_BEST = 10
"""Labels of a document that count: few of the others are ever shown."""
_SMOOTHNESS, _RIDGE, _LEAST_FACTOR = 10.0, 4.0, 0.05
"""Weights, in pairs, of half the squared difference of neighbouring knots, and of half the squared
distance of a factor from 1."""


@dataclass(frozen=True, slots=True)
class Blending:
    """What is added to a trained model so that it gives probabilities and blends its scorers.

    Attributes:
        calibrations: Calibration of each scorer that could be calibrated.
        blends: By the name of the scorer that they make.
        thresholds: Threshold of the best micro-F1, for each calibrated scorer that finds a right
            label.
        label_counts: The same by place, for the threshold "auto".
    """

    calibrations: dict[str, Calibration]
    blends: dict[str, RarityBlend]
    thresholds: dict[str, float] = field(default_factory=dict)
    label_counts: dict[str, PlaceThreshold] = field(default_factory=dict)

    def of(self, scorers: Collection[str]) -> Blending:
        """Return the part of it that concerns these scorers."""
        found = (
            {x: y for x, y in getattr(self, each.name).items() if x in scorers}
            for each in fields(self)
        )
        return Blending(*found)


blending_to_json, blending_from_json = json_forms(Blending)


def fit_blending(dev: DevRanking, blends: Mapping[str, tuple[str, ...]]) -> Blending:
    """Calibrate every scorer, choose the members of blends, fit the blends, and calibrate them.

    Args:
        dev: The dev split.
        blends: By the name of each blend to be made, the scorers that it may be made of.
    """
    calibrations = calibrations_of(dev.pairs)
    found = {}
    for blend, candidates in blends.items():
        calibrated = [name for name in candidates if name in calibrations]
        if not calibrated:
            logger.warning("dev split: no scorer could be calibrated, so there is no %r", blend)
            continue
        fitted = without_idle(dev.blend(dev.choose(calibrated, calibrations), calibrations))
        logger.info("%s: %s", blend, in_words(fitted))
        found[blend] = fitted
    scores = {
        name: blended(fitted, calibrations, dev.pairs, dev.catalogue)
        for name, fitted in found.items()
    }
    calibrations = calibrations | calibrations_of(replace(dev.pairs, scores=scores))
    pairs = replace(dev.pairs, scores=dev.pairs.scores | scores)
    best = {name: best_threshold(pairs, name, own) for name, own in calibrations.items()}
    thresholds = {name: each for name, each in best.items() if each is not None}
    counts = {name: best_label_count(pairs, name, own) for name, own in calibrations.items()}
    known = {name: each for name, each in counts.items() if each is not None}
    return Blending(calibrations, found, thresholds, known)


def calibrations_of(pairs: ScoredPairs) -> dict[str, Calibration]:
    """Return the calibrations of scorers, of which a label is right."""
    found = {name: fit_calibration(*pairs.of(name)) for name in pairs.scores}
    for name, calibration in found.items():
        if calibration is None:
            logger.warning("dev split: %s can't be calibrated: none of its labels is right", name)
    return {
        name: with_rarity(pairs, name, each) for name, each in found.items() if each is not None
    }


def with_rarity(pairs: ScoredPairs, scorer: str, calibration: Calibration) -> Calibration:
    """Return a calibration whose probabilities hold of labels of any number of documents.

    One curve for all labels says too much of rare ones, which the order of a blend lifts, and too
    little of others. Bands have few right labels on dev, so the lines of neighbouring knots are
    drawn together, and all towards no change.

    Args:
        pairs: Pairs of the dev split.
        scorer: One of those that scored them; it scored at least one.
        calibration: Calibration of all its labels.
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


def without_idle(blend: RarityBlend) -> RarityBlend:
    """Return a blend without the scorers of weight 0 everywhere, which would only take time."""
    used = [name for name, weights in blend.weights.items() if any(weights)]
    used = used or list(blend.weights)[:1]
    return replace(
        blend,
        weights={name: blend.weights[name] for name in used},
        floors={name: blend.floors[name] for name in used},
        below={name: blend.below[name] for name in used},
    )
