"""Aims: what an answer is to be good at, as a gain of each label that rises with its probability.

A measure that is a mean over labels, such as macro-F1@k or coverage@k, is best served by the k
labels of the largest a_y p(y|x) + b_y (Schultheis et al. 2023, 2024). Here a_y depends on the
number of training documents alone and b_y is -theta a_y, because numbers of every label by itself
fit the dev split and nothing else (see docs/decisions/models.md).
`longtail.training.fitted.aims` fits them. The gain rises with the score, so
`longtail.models.ranking.threshold_algorithm` ranks by it exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32, Float64, Int64
from scipy.special import expit

from longtail.models.bundle.manifest import Calibration, Manifest
from longtail.models.errors import RequestError
from longtail.models.files.typed_json import json_forms
from longtail.models.fitted.part import AskedGain, FittedPart, HasFitted
from longtail.models.labels.selection import Selection
from longtail.models.options import AIM_NAMES, PRECISION, AimName, RankingOptions
from longtail.models.parts.model_parts import ModelParts
from longtail.models.ranking.threshold_algorithm import Combination
from longtail.models.scorers.calibration import by_rarity, log_odds_of, most_by_rarity

_MOST = 1e12
"""No number of an aim, nor a weight, is larger, so that gains are finite."""
_SLACK = 2.0**-40
"""By this share of the largest weight a bound is raised; rounding moves a gain by far less."""


@dataclass(frozen=True, slots=True)
class Aim:
    """How much a right and a wrong label count for an aim.

    The gain of a label y is a_y (p - theta), where p is the sigmoid of its log-odds, whatever its
    training documents (see `log_odds_of`), and a_y = base + scale (n_y +
    offset)^-exponent with n_y training documents of y. Below theta it is p - theta, so that labels
    that are not worth answering follow in the order of their probabilities.

    Attributes:
        base: At least 0.
        scale: At least 0; base and scale are not both 0.
        offset: Above 0.
        exponent: At least 0; with more of it rare labels count more.
        pivot: theta, from 0 up to, but not, 1: the probability from which a label is worth
            answering; of macro-F1, half the F1 that is reached.
    """

    base: float
    scale: float
    offset: float
    exponent: float
    pivot: float

    def __post_init__(self) -> None:
        """Refuse numbers that don't make a gain that rises with the probability."""
        numbers = [getattr(self, field.name) for field in fields(self)]
        is_finite = all(type(x) is float and 0 <= x <= _MOST for x in numbers)
        if not is_finite or self.base + self.scale == 0 or self.offset == 0 or self.pivot >= 1:
            raise ValueError(
                f"aim {self}: expected numbers from 0, base and scale not both 0, an offset above "
                "0 and a pivot below 1"
            )
        try:
            largest = self.base + self.scale * self.offset**-self.exponent  # of no document
        except OverflowError:
            largest = math.inf
        if largest > _MOST:
            raise ValueError(f"aim {self}: weighs a label without documents by {largest}")

    def weights(self, training_counts: Int64[np.ndarray, label]) -> Float32[np.ndarray, label]:
        """Return a_y of each label."""
        rarity = (training_counts + self.offset) ** -self.exponent
        weights: Float32[np.ndarray, label] = (self.base + self.scale * rarity).astype(np.float32)
        return weights


Aims = Mapping[str, Mapping[AimName, Aim]]
"""By scorer and name; `PRECISION`, which every scorer has, is none of them."""


class AimedRanking:
    """An aim of one scorer of one model: makes combinations for queries."""

    def __init__(
        self, aim: Aim, calibration: Calibration, training_counts: Int64[np.ndarray, label]
    ) -> None:
        """Weigh the labels."""
        self._aim = aim
        self._calibration = calibration
        self._counts, self._weights = training_counts, aim.weights(training_counts)

    def of(
        self, inner: Combination, threshold: float | None, calibration: Calibration | None = None
    ) -> AimedCombination:
        """Return what ranks by the gains.

        Args:
            inner: What makes the score of the scorer.
            threshold: Least probability of a label that may be ranked; None: any.
            calibration: Of the texts; None: that of documents.
        """
        calibration, largest = calibration or self._calibration, float(self._weights.max())
        return AimedCombination(
            inner, calibration, self._counts, self._weights, self._aim.pivot, threshold or 0.0,
            largest,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class AimedCombination:
    """Gains of labels, computed from the scores of a scorer or of a blend's members.

    Attributes:
        inner: What makes one score of them.
        calibration: What makes log-odds of that.
        counts: Training documents of each label.
        weights: a_y of each label.
        pivot: theta.
        threshold: Least probability of a label that may be ranked.
        largest: The largest weight of a label that may be ranked.
    """

    inner: Combination
    calibration: Calibration
    counts: Int64[np.ndarray, label]
    weights: Float32[np.ndarray, label]
    pivot: float
    threshold: float
    largest: float

    def combine(
        self, scores: Float32[np.ndarray, "scorer row m"], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the gains; -inf for labels without a score or below the threshold."""
        own = self.inner.combine(scores, labels)
        log_odds = log_odds_of(self.calibration, own)
        gains = self._gains(expit(log_odds), self.weights[labels].astype(np.float64))
        true = expit(by_rarity(self.calibration, log_odds, self.counts[labels]))
        is_left_out = np.isneginf(own) | (true < self.threshold)
        return np.where(is_left_out, -np.inf, gains).astype(np.float32)

    def among(self, selection: Selection) -> AimedCombination:
        """Return the same where only the selected labels may be returned."""
        largest = float(self.weights[selection.labels].max(initial=0))
        return replace(self, inner=self.inner.among(selection), largest=largest)

    def leading(self, depth: int) -> Int64[np.ndarray, label]:
        """Return the labels for which the bound of the scorer need not hold."""
        return self.inner.leading(depth)

    def bound(
        self, frontiers: Float32[np.ndarray, "scorer row"], depth: int
    ) -> Float32[np.ndarray, row]:
        """Return the gain of the largest weight at the bound of the score.

        It is a little more than that, for all that is rounded on the way.
        """
        own = self.inner.bound(frontiers, depth)
        log_odds = log_odds_of(self.calibration, own)
        gains = self._gains(expit(log_odds) * (1 + _SLACK), np.float64(self.largest))
        gains += _SLACK * max(1.0, self.largest)
        most = expit(most_by_rarity(self.calibration, log_odds)) * (1 + _SLACK)
        is_left_out = np.isneginf(own) | (most < self.threshold)
        bound = np.nextafter(gains.astype(np.float32), np.float32(np.inf))
        return np.where(is_left_out, np.float32(-np.inf), bound)

    def _gains(
        self,
        probabilities: Float64[np.ndarray, "*shape"],
        weights: Float64[np.ndarray, "*shape"] | np.float64,
    ) -> Float64[np.ndarray, "*shape"]:
        """Return a_y (p - theta), or p - theta where that is below 0."""
        above = probabilities - self.pivot
        gains: Float64[np.ndarray, "*shape"] = np.where(above > 0, weights * above, above)
        return gains


class AimGains:
    """The aims of one model."""

    def __init__(self, aims: Aims, parts: ModelParts) -> None:
        """Take the aims, and what they need of the model."""
        self._aims = aims
        self._parts = parts
        self._weighed: dict[tuple[str, Aim], AimedRanking] = {}

    def asked(
        self, options: RankingOptions, scorer: str, is_as_trained: bool
    ) -> AimedRanking | None:
        """Return the aim of a query (see `longtail.models.fitted.part.AskedGain`)."""
        if options.aim is None or options.aim == PRECISION:
            return None  # probabilities rise with the score
        if not is_as_trained:
            raise RequestError(
                f"aim is {options.aim!r} without the correction of scorer {scorer!r}, which leaves "
                "no probabilities to weigh; leave out one of the two"
            )
        aims = {str(name): aim for name, aim in self._aims.get(scorer, {}).items()}
        if options.aim in aims:
            return self._weighed_by(scorer, aims[options.aim])
        others = [x for x in self._parts.scorers if options.aim in names_of(self._aims, x)]
        instead = f"use one of {', '.join(others)}" if others else "train again with a dev split"
        raise RequestError(
            f"aim is {options.aim!r}, for which this bundle holds nothing that was fitted on a dev "
            f"split for scorer {scorer!r}; leave the aim out, or {instead}"
        )

    def _weighed_by(self, scorer: str, aim: Aim) -> AimedRanking:
        """Return the weighed labels, which are kept: there are few aims, and many labels."""
        if (scorer, aim) not in self._weighed:
            counts = self._parts.catalogue.training_counts
            weighed = AimedRanking(aim, self._parts.calibrations[scorer], counts)
            self._weighed[scorer, aim] = weighed
        return self._weighed[scorer, aim]


def names_of(aims: Aims, scorer: str) -> tuple[AimName, ...]:
    """Return the names of the aims that a scorer has, `PRECISION` among them."""
    fitted = aims.get(scorer, {})
    return tuple(name for name in AIM_NAMES if name == PRECISION or name in fitted)


class AimsPart(FittedPart[Aims]):
    """Ranks labels by their gains for an aim."""

    name = "aims"
    option = "aim"
    forms = json_forms(dict[str, dict[Literal["rare_labels", "coverage", "propensity"], Aim]])
    lacking = MappingProxyType({})

    def problem(self, value: Aims, parts: ModelParts) -> str:
        """Return that the aims are not all of those of the calibrated scorers."""
        fitted = set(AIM_NAMES) - {PRECISION}
        expected = dict.fromkeys(parts.calibrations, fitted)
        if {scorer: set(aims) for scorer, aims in value.items()} == expected:
            return ""
        found = {scorer: sorted(aims) for scorer, aims in value.items()}
        return f"aims {found}, expected {sorted(fitted)} of each of {sorted(expected)}"

    def listed(self, manifest: Manifest | None, model: HasFitted | None) -> dict[str, Any]:
        """Return the aims that each scorer offers, the one of ordinary queries first."""
        del model
        if manifest is None:
            return {"aims": {}}
        fitted = {*manifest.calibrations} if self.file in manifest.files else set()
        offered = {x: [*AIM_NAMES] if x in fitted else [PRECISION] for x in manifest.scorers}
        return {"aims": offered}

    def gains(self, value: Aims, parts: ModelParts) -> AskedGain:
        """Return what finds the aims of queries."""
        return AimGains(value, parts).asked


AIMS = AimsPart()
