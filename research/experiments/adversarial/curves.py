"""Learning curves of the trials, and how soon a method is good with the quickest of its candidates.

A candidate that is best at the end of training need not be good soon: small rates end higher and
climb slowly. So times to a level are those of the envelope: of whichever candidate is there first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64

from research.experiments.adversarial.methods import WITH_TREE, MethodName
from research.experiments.adversarial.trial_runner import TREE, TRUE, Criterion, name_at
from research.experiments.adversarial.tuning import Candidate
from research.experiments.trials import Estimate

Settings = Mapping[str, Mapping[str, Estimate]]
"""Estimates by setting and name of the figure: those of a task."""

Clock = Literal["cpu", "wall"]
"""Seconds of the process, which other work on the machine hardly changes, or those on the wall."""

BASELINE: MethodName = "uniform"
"""What it reaches is what the others are timed to."""
SHARES = (0.9, 0.95, 0.99)
"""Levels, as shares of the way from scores of zero to the best of the baseline."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A learning curve of one seed; each array has an entry a point.

    Attributes:
        seconds: Seconds of the clock that was asked for, the tree's fit included.
        values: Accuracy, or log likelihood.
    """

    seconds: Float64[np.ndarray, point]
    values: Float64[np.ndarray, point]

    def seconds_to(self, value: float) -> float:
        """Return when a value is reached first, by a line between points; inf if never."""
        reached = np.flatnonzero(self.values >= value)
        if not len(reached):
            return math.inf
        around = slice(max(0, int(reached[0]) - 1), int(reached[0]) + 1)
        return float(np.interp(value, self.values[around], self.seconds[around]))


def candidates_in(settings: Settings, method: MethodName) -> list[Candidate]:
    """Return the candidates of a method that have a curve; one whose loss overflows has none."""
    candidates = [
        Candidate.of_setting(name)
        for name, figures in settings.items()
        if name not in (TREE, TRUE) and name_at("steps", 0) in figures
    ]
    return [each for each in candidates if each.method == method]


def curves_of(
    settings: Settings, candidate: Candidate, quantity: Criterion, clock: Clock
) -> dict[int, Curve]:
    """Return the curves of a candidate by seed."""
    figures = settings[candidate.setting]
    head = settings[TREE][f"{clock}_s"].mean if candidate.method in WITH_TREE else 0.0
    num_points = sum(name.startswith("steps ") for name in figures)
    seconds, values = (
        np.array([figures[name_at(figure, point)].values for point in range(num_points)]).T
        for figure in (f"{clock}_s", quantity)
    )
    seeds = figures[name_at("steps", 0)].seeds
    curves = (Curve(head + own, reached) for own, reached in zip(seconds, values, strict=True))
    return dict(zip(seeds, curves, strict=True))


def levels(settings: Settings, criterion: Criterion) -> dict[int, dict[float, float]]:
    """Return what is to be reached, by seed and share; empty without the baseline.

    The share of the way from scores of zero, where every label is equally probable, to the best
    point of any curve of the baseline with that seed.

    Args:
        settings: A task's settings.
        criterion: What is to be as good.
    """
    values: dict[int, list[Float64[np.ndarray, point]]] = {}
    for candidate in candidates_in(settings, BASELINE):
        for seed, curve in curves_of(settings, candidate, criterion, "cpu").items():
            values.setdefault(seed, []).append(curve.values)
    found = {}
    for seed, own in values.items():
        start, best = own[0][0], max(each.max() for each in own)
        found[seed] = {share: float(start + share * (best - start)) for share in SHARES}
    return found


def seconds_to(
    settings: Settings, candidate: Candidate, criterion: Criterion, level: float, clock: Clock
) -> dict[int, float]:
    """Return when a candidate reaches a level, by seed: inf if never, empty without a curve."""
    if name_at("steps", 0) not in settings[candidate.setting]:
        return {}
    curves = curves_of(settings, candidate, criterion, clock)
    return {seed: curve.seconds_to(level) for seed, curve in curves.items()}


def quickest(
    settings: Settings,
    method: MethodName,
    criterion: Criterion,
    level: float,
    *,
    clock: Clock = "cpu",
    seed: int = 0,
) -> Candidate:
    """Return the candidate of a method that reaches a level first with one seed.

    Of those that never do, the first.
    """

    def seconds(candidate: Candidate) -> float:
        return seconds_to(settings, candidate, criterion, level, clock).get(seed, math.inf)

    return min(candidates_in(settings, method), key=seconds)


@dataclass(frozen=True, slots=True)
class TimeToLevel:
    """How soon a method is as good as a share of the baseline's best.

    Attributes:
        candidate: The quickest with the lowest seed.
        seconds: Over the seeds, each with its own quickest candidate; inf: never.
        quotient: How many times as soon as the baseline, with its quickest candidate.
    """

    candidate: Candidate
    seconds: Estimate
    quotient: Estimate


def time_to_level(
    settings: Settings, method: MethodName, criterion: Criterion, share: float, clock: Clock
) -> TimeToLevel:
    """Return when a method first is as good as a share of the baseline's best.

    Args:
        settings: A task's settings, with the baseline.
        method: One that has a curve.
        criterion: What is to be as good.
        share: One of `SHARES`.
        clock: Whose seconds.
    """
    with_seed = {
        seed
        for candidate in candidates_in(settings, method)
        for seed in settings[candidate.setting][name_at("steps", 0)].seeds
    }
    by_seed = levels(settings, criterion)
    seeds = tuple(seed for seed in sorted(by_seed) if seed in with_seed)
    chosen, seconds, quotients = [], [], []
    for seed in seeds:
        level = by_seed[seed][share]
        pair = [
            quickest(settings, name, criterion, level, clock=clock, seed=seed)
            for name in (method, BASELINE)
        ]
        own, baseline = (
            seconds_to(settings, each, criterion, level, clock).get(seed, math.inf) for each in pair
        )
        chosen.append(pair[0])
        seconds.append(own)
        quotients.append(baseline / own if own else math.inf)
    return TimeToLevel(
        chosen[0], Estimate(tuple(seconds), seeds), Estimate(tuple(quotients), seeds)
    )
