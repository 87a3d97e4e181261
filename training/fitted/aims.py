"""Aims fitted on the dev split: which weights of labels make a measure large, at what price.

Weights that depend on a label's training documents alone are tried on a grid (see
`longtail.models.fitted.aims.Aim`). The measures are counted with the labels that the documents
have. Two numbers for all labels hardly overfit; see docs/decisions/models.md for
what did.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64
from scipy.sparse import csr_array

from longtail.models.bundle.manifest import Calibration
from longtail.models.fitted.aims import AIMS, Aim, AimedRanking, Aims
from longtail.models.options import COVERAGE, PROPENSITY, RARE_LABELS, AimName
from longtail.models.ranking.threshold_algorithm import SUM
from longtail.models.ranking.top_k import NO_LABEL, Ranking, top_of_candidates
from longtail.training.calibration.ensemble import Blending
from longtail.training.calibration.scored_pairs import NUM_BEST, ScoredPairs
from longtail.training.evaluation.by_frequency import TAIL_BIN, label_subsets
from longtail.training.evaluation.metrics import (
    PROPENSITY_A,
    PROPENSITY_B,
    is_found_at,
    join_truth,
    label_f1_at,
    precision_at,
    propensity_scale,
)
from longtail.training.fitted.fitting import PartFitting, RankedDevDocuments

logger = logging.getLogger(__name__)

CUT_OFF = 5
"""k of the measures; less where there are fewer labels."""
_EXPONENTS = tuple(step / 10 for step in range(11))
_PIVOTS = (0.0, 0.01, 0.02, 0.05, 0.1)


def fit_aims(
    pairs: ScoredPairs,
    truth: Float32[csr_array, "document label"],
    calibrations: Mapping[str, Calibration],
    training_counts: Int64[np.ndarray, label],
    num_training_documents: int,
) -> dict[str, dict[AimName, Aim]]:
    """Return the aims of every calibrated scorer."""
    propensity = propensity_aim(num_training_documents)
    found: dict[str, dict[AimName, Aim]] = {}
    for name, calibration in calibrations.items():
        scores = np.where(pairs.is_best, pairs.scores[name], -np.inf).astype(np.float32)
        best = top_of_candidates(pairs.labels, scores, min(NUM_BEST, scores.shape[1]))
        search = AimSearch(best, truth, calibration, training_counts)
        found[name] = {**search.preferred(), PROPENSITY: propensity}
        logger.info("aims of %s: %s", name, found[name])
    return found


def propensity_aim(num_training_documents: int) -> Aim:
    """Return the aim of PSP@k: a label counts as much as its inverse propensity.

    Args:
        num_training_documents: N of `longtail.training.evaluation.metrics.inverse_propensities`.
    """
    return Aim(
        base=1.0,
        scale=propensity_scale(num_training_documents),
        offset=PROPENSITY_B,
        exponent=PROPENSITY_A,
        pivot=0.0,
    )


@dataclass(frozen=True, slots=True)
class _Trial:
    """An aim on the grid, and what ranking by it is worth.

    Attributes:
        aim: It.
        precision: P@k.
        values: Of each measure, its value for every label that it is the mean over.
    """

    aim: Aim
    precision: float
    values: dict[AimName, Float64[np.ndarray, label]]


class AimSearch:
    """Tries the aims of the grid on the best labels of a scorer."""

    def __init__(
        self,
        best: Ranking,
        truth: Float32[csr_array, "document label"],
        calibration: Calibration,
        training_counts: Int64[np.ndarray, label],
    ) -> None:
        """Note what stays the same.

        Args:
            best: The labels of each document that may be ranked, by falling score.
            truth: The labels that it has.
            calibration: Of the scorer.
            training_counts: Number of training documents of each label.
        """
        self._best = best
        self._truth = truth
        self._calibration = calibration
        self._counts = training_counts
        self._k = min(CUT_OFF, best.labels.shape[1])
        is_tail = label_subsets(training_counts)[TAIL_BIN]
        self._is_tail = is_tail if is_tail.any() else np.ones_like(is_tail)
        self._is_true = np.bincount(truth.indices, minlength=truth.shape[1]) > 0

    def preferred(self) -> dict[AimName, Aim]:
        """Return the aims of macro-F1@k of rare labels, and of coverage@k (see `preferred_of`)."""
        trials = [self._tried(aim) for aim in grid()]
        return {name: preferred_of(trials, name) for name in (RARE_LABELS, COVERAGE)}

    def _tried(self, aim: Aim) -> _Trial:
        judged = join_truth(self._ranked(aim), self._truth)
        return _Trial(
            aim,
            precision_at(judged, self._k),
            {
                RARE_LABELS: label_f1_at(judged, self._k)[self._is_tail],
                COVERAGE: is_found_at(judged, self._k)[self._is_true].astype(np.float64),
            },
        )

    def _ranked(self, aim: Aim) -> Int64[np.ndarray, "document k"]:
        """Return the k labels of the largest gains, in no order: at k places none of it counts."""
        combination = AimedRanking(aim, self._calibration, self._counts).of(SUM, None)
        gains = combination.combine(self._best.scores[None], self._best.labels)
        found = np.argpartition(-gains, self._k - 1, axis=1)[:, : self._k]
        labels = np.take_along_axis(self._best.labels, found, axis=1)
        labels[np.isneginf(np.take_along_axis(gains, found, axis=1))] = NO_LABEL
        return -np.sort(-labels, axis=1)  # padding last


def grid() -> Iterator[Aim]:
    """Give the aims that are tried: first the one that ranks as probabilities do.

    Yields:
        Aims with weights (n_y + 1)^-exponent.
    """
    for pivot, exponent in itertools.product(_PIVOTS, _EXPONENTS):
        yield Aim(base=0.0, scale=1.0, offset=1.0, exponent=exponent, pivot=pivot)


def preferred_of(trials: list[_Trial], name: AimName) -> Aim:
    """Return the most precise aim among the aims that do not differ significantly from the best.

    That is: whose mean over the labels is smaller by at most the standard error of the difference.
    A measure of rare labels has a wide, flat top, and along it precision is lost for nothing.
    """
    best = max(trials, key=lambda trial: float(trial.values[name].mean()))

    def is_as_good(trial: _Trial) -> bool:
        behind = best.values[name] - trial.values[name]
        return float(behind.mean()) <= float(behind.std() / np.sqrt(len(behind)))

    return max(filter(is_as_good, trials), key=lambda trial: trial.precision).aim


class AimsFitting(PartFitting[Aims]):
    """Fits the aims of all calibrated scorers."""

    part = AIMS

    def fit(self, dev: RankedDevDocuments, blending: Blending, default: str) -> Aims:
        """Return the aims."""
        del default
        counts = dev.predictor.catalogue.training_counts
        pairs, number = dev.scored(blending), dev.num_training_documents
        return fit_aims(pairs, dev.truth, blending.calibrations, counts, number)
