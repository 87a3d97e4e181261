"""What is fitted on the dev split when all is trained: calibrations, and the ensemble's weights."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int64
from scipy.sparse import csr_array

from models.bundle.manifest import Calibration, Ensemble
from models.files.durable import read_json, write_json_durably
from models.labels.catalogue import LabelCatalogue
from models.names import BLENDABLE, ENSEMBLE
from models.ranking.top_k import NO_LABEL
from models.scorers.blending import Blend, weighted_blend
from models.scorers.calibration import probabilities_of
from training.calibration.fit import fit_calibration
from training.calibration.scored_pairs import ScoredPairs
from training.configuration.sections import EnsembleConfig
from training.evaluation.by_frequency import TAIL_BIN, label_subsets
from training.evaluation.metrics import (
    inverse_propensities,
    join_truth,
    label_f1_at,
    precision_at,
    propensity_scored_precision_at,
)

logger = logging.getLogger(__name__)

_GRID = 10
"""The first search is over weights in steps of one to this."""
_FINER_STEPS = (0.05, 0.025)
"""Then these are moved from one scorer to another, as long as it helps."""
_FILE_NAME = "blending.json"


@dataclass(frozen=True, slots=True)
class Blending:
    """What is added to a trained model so that it gives probabilities and an ensemble.

    Attributes:
        calibrations: Of each scorer that could be calibrated.
        ensemble: The weights; None where there is nothing to blend.
    """

    calibrations: dict[str, Calibration]
    ensemble: Ensemble | None

    def to_json(self) -> dict[str, Any]:
        """Return plain dictionaries; numbers come back from JSON as they were."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Blending:
        """Read what `to_json` gave."""
        calibrations = {
            name: Calibration(tuple(found["knots"]), tuple(found["slopes"]), found["intercept"])
            for name, found in content["calibrations"].items()
        }
        ensemble = content["ensemble"]
        return cls(calibrations, None if ensemble is None else Ensemble(ensemble["weights"]))


def kept_blending(folder: Path, fit: Callable[[], Blending]) -> Blending:
    """Return what the folder holds, or fit it and keep it there."""
    path = folder / _FILE_NAME
    if path.exists():
        return Blending.from_json(read_json(path))
    blending = fit()
    folder.mkdir(parents=True, exist_ok=True)
    write_json_durably(path, blending.to_json())
    return blending


def fit_blending(
    pairs: ScoredPairs,
    truth: Float32[csr_array, "document label"],
    catalogue: LabelCatalogue,
    num_training_documents: int,
    config: EnsembleConfig | None,
) -> Blending:
    """Calibrate every scorer, find the ensemble's weights, and calibrate the ensemble.

    Args:
        pairs: Of the dev split.
        truth: Its labels.
        catalogue: With the training counts.
        num_training_documents: For the propensities.
        config: What the weights are to be good at; None: there is to be no ensemble.
    """
    calibrations = _calibrated(pairs)
    if config is None:
        return Blending(calibrations, None)
    names = [name for name in BLENDABLE if name in calibrations]
    if not names:
        logger.warning("dev split: no scorer could be calibrated, so there is no ensemble")
        return Blending(calibrations, None)
    objective = BlendObjective(pairs, truth, catalogue, num_training_documents, config)
    probabilities = np.stack([_rankable(pairs, name, calibrations[name]) for name in names])
    weights = find_weights(len(names), lambda some: objective.value(_blended(some, probabilities)))
    found = dict(zip(names, weights.tolist(), strict=True))
    logger.info("ensemble: %s", ", ".join(f"{name} {w:g}" for name, w in found.items()))
    blend = weighted_blend(found, calibrations, catalogue.log_priors)
    scored = ScoredPairs(
        pairs.labels, pairs.is_true, pairs.is_best, pairs.weights,
        {ENSEMBLE: _scores_of(blend, pairs)},
    )  # fmt: skip
    return Blending(calibrations | _calibrated(scored), Ensemble(found))


def _calibrated(pairs: ScoredPairs) -> dict[str, Calibration]:
    found = {name: fit_calibration(*pairs.of(name)) for name in pairs.scores}
    for name, calibration in found.items():
        if calibration is None:
            logger.warning("dev split: %s can't be calibrated: no true label to learn from", name)
    return {name: calibration for name, calibration in found.items() if calibration is not None}


def _rankable(
    pairs: ScoredPairs, name: str, calibration: Calibration
) -> Float32[np.ndarray, "document m"]:
    """Return calibrated probabilities of the pairs that may be ranked; 0 for all others."""
    probabilities = probabilities_of(calibration, pairs.scores[name])
    return np.where(pairs.is_best, probabilities, 0).astype(np.float32)


def _blended(
    weights: Float64[np.ndarray, scorer], probabilities: Float32[np.ndarray, "scorer document m"]
) -> Float32[np.ndarray, "document m"]:
    blended: Float32[np.ndarray, "document m"] = np.tensordot(
        weights.astype(np.float32), probabilities, axes=1
    )
    return blended


def _scores_of(blend: Blend, pairs: ScoredPairs) -> Float32[np.ndarray, "document m"]:
    scores = np.stack([pairs.scores[member.name] for member in blend.members])
    return blend.blended(scores, pairs.labels)


class BlendObjective:
    """What the weights of an ensemble are to be good at: P@k, PSP@k and macro-F1@k, weighed."""

    def __init__(
        self,
        pairs: ScoredPairs,
        truth: Float32[csr_array, "document label"],
        catalogue: LabelCatalogue,
        num_training_documents: int,
        config: EnsembleConfig,
    ) -> None:
        """Note what stays the same for all weights."""
        counts = catalogue.training_counts
        self._labels = np.where(pairs.is_best, pairs.labels, NO_LABEL)
        self._truth = truth
        self._config = config
        self._k = min(config.cut_off, pairs.labels.shape[1])
        self._propensity_weights = inverse_propensities(counts, num_training_documents)
        self._is_tail = label_subsets(counts)[TAIL_BIN]

    def value(self, scores: Float32[np.ndarray, "document m"]) -> float:
        """Return the objective of ranking by these scores; labels of score 0 are not ranked."""
        config, k = self._config, self._k
        judged = join_truth(self._best(scores), self._truth)
        value = config.precision * precision_at(judged, k)
        value += config.propensity_scored_precision * propensity_scored_precision_at(
            judged, k, self._propensity_weights
        )
        if config.tail_f1 and self._is_tail.any():
            value += config.tail_f1 * float(label_f1_at(judged, k)[self._is_tail].mean())
        return float(value)

    def _best(self, scores: Float32[np.ndarray, "document m"]) -> Int64[np.ndarray, "document k"]:
        """Return the labels of the k best scores, in no order: at k places none of it counts."""
        found = np.argpartition(-scores, self._k - 1, axis=1)[:, : self._k]
        labels = np.take_along_axis(self._labels, found, axis=1)
        labels[np.take_along_axis(scores, found, axis=1) == 0] = NO_LABEL
        return -np.sort(-labels, axis=1)  # padding last


def find_weights(
    num_scorers: int, value_of: Callable[[Float64[np.ndarray, scorer]], float]
) -> Float64[np.ndarray, scorer]:
    """Return the weights, of sum 1, with the largest value that a deterministic search finds.

    All weights in tenths are tried first; then small parts are moved from one scorer to another,
    always the move that helps most, until none does. Of equal values the first tried stays.

    Args:
        num_scorers: At least 1.
        value_of: What is to be large.
    """
    best = max(_grid(num_scorers), key=value_of)
    value = value_of(best)
    for step in _FINER_STEPS:
        while True:
            moves = list(_moves(best, step))
            values = [value_of(move) for move in moves]
            if not moves or max(values) <= value:
                break
            value = max(values)
            best = moves[values.index(value)]
    return best


def _grid(num_scorers: int) -> Iterator[Float64[np.ndarray, scorer]]:
    """Give all weights in tenths.

    Yields:
        Weights of sum 1.
    """
    for first in itertools.product(range(_GRID + 1), repeat=num_scorers - 1):
        if sum(first) <= _GRID:
            yield np.array([*first, _GRID - sum(first)]) / _GRID


def _moves(
    weights: Float64[np.ndarray, scorer], step: float
) -> Iterator[Float64[np.ndarray, scorer]]:
    """Give the weights that moving one step from one scorer to another makes.

    Yields:
        Weights of sum 1, rounded so that no error adds up.
    """
    for source, target in itertools.permutations(range(len(weights)), 2):
        if weights[source] >= step:
            moved = weights.copy()
            moved[source] -= step
            moved[target] += step
            yield moved.round(6)
