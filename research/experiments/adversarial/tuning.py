"""The grid of learning rates and regularisers of Bamler & Mandt 2020, and the search in it.

The paper tries all of rho in {0.0003, 0.001, ..., 0.03} times lambda in {10^-5, ..., 0.03}. Here
the grid has no border for rho and a wide one for the regulariser, and the search goes along one
axis, then the other, for as long as it gets better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from research.experiments.adversarial.methods import MethodName

_REGULARISERS = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_PRIOR_VARIANCES = (None, 1000.0, 100.0, 10.0, 1.0, 0.1, 0.01)
"""Penalties of a method, from none to the strongest: lambda, or sigma_0^2."""

_START: Mapping[MethodName, tuple[int, int]] = {
    "adversarial": (-3, 4),
    "uniform": (-3, 3),
    "frequency": (-3, 3),
    "nce": (-3, 3),
    "one_versus_each": (-2, 2),
    "augment_and_reduce": (-2, 2),
    "softmax": (-2, 2),
}
"""Where the search of a method begins: half-decade of the rate, index of the penalty."""

METHODS: tuple[MethodName, ...] = tuple(_START)
_PENALISED_BY_PRIOR = ("one_versus_each", "augment_and_reduce", "softmax")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A method with its learning rate and its penalty.

    Attributes:
        method: One of `METHODS`.
        half_decade: Half decades of the rate: 0 is 1, -1 is 0.3, -2 is 0.1.
        penalty_index: Number of the penalty among those of the method; 0: none.
    """

    method: MethodName
    half_decade: int
    penalty_index: int

    @classmethod
    def start(cls, method: MethodName) -> Candidate:
        """Return where the search begins."""
        return cls(method, *_START[method])

    @property
    def learning_rate(self) -> float:
        """Rho of Adagrad."""
        decade, is_three = divmod(self.half_decade, 2)
        return float(f"{3 if is_three else 1}e{decade}")

    @property
    def regulariser(self) -> float:
        """Lambda of Eq. 6; 0 for methods that have a prior instead."""
        return 0.0 if self.method in _PENALISED_BY_PRIOR else _REGULARISERS[self.penalty_index]

    @property
    def prior_variance(self) -> float | None:
        """sigma_0^2 of Ruiz et al. 2018; None: no prior."""
        return _PRIOR_VARIANCES[self.penalty_index] if self.method in _PENALISED_BY_PRIOR else None

    @property
    def penalty(self) -> str:
        """The penalty, as tables have it."""
        if self.method in _PENALISED_BY_PRIOR:
            variance = self.prior_variance
            return "none" if variance is None else f"σ₀²={variance:g}"
        return f"λ={self.regulariser:g}"

    @property
    def setting(self) -> str:
        """The name of the trials."""
        return f"{self.method}-{self.half_decade}-{self.penalty_index}"

    @classmethod
    def of_setting(cls, setting: str) -> Candidate:
        """Return the candidate of a name that `setting` gave."""
        known = {f"{method}-": method for method in METHODS}
        (prefix,) = (prefix for prefix in known if setting.startswith(prefix))
        half_decade, _, index = setting.removeprefix(prefix).rpartition("-")
        return cls(known[prefix], int(half_decade), int(index))

    def neighbours(self, axis: str) -> list[Candidate | None]:
        """Return the next ones up and down an axis, None where it ends."""
        if axis == "half_decade":
            return [replace(self, half_decade=self.half_decade + step) for step in (1, -1)]
        num_penalties = len(
            _PRIOR_VARIANCES if self.method in _PENALISED_BY_PRIOR else _REGULARISERS
        )
        return [
            replace(self, penalty_index=self.penalty_index + step)
            if 0 <= self.penalty_index + step < num_penalties
            else None
            for step in (1, -1)
        ]


def tune(
    method: MethodName, objective_value: Callable[[Candidate], float], num_rounds: int
) -> Candidate:
    """Return the best candidate of a search along both axes in turn.

    Args:
        method: Whose candidates.
        objective_value: A candidate's objective value, higher is better; may be asked for one more
            than once.
        num_rounds: Turns over both axes at most; 0 returns the start.
    """
    best = Candidate.start(method)
    for _ in range(num_rounds):
        before = best
        for axis in ("half_decade", "penalty_index"):
            best = best_along(axis, best, objective_value)
        if best == before:
            break
    return best


def best_along(
    axis: str, start: Candidate, objective_value: Callable[[Candidate], float]
) -> Candidate:
    """Return the best candidate along one axis: up, or else down, as long as it gets better.

    Args:
        axis: "half_decade" or "penalty_index".
        start: Where to begin.
        objective_value: A candidate's objective value, higher is better; may be asked for one more
            than once.
    """
    best = start
    for direction in (0, 1):
        while (near := best.neighbours(axis)[direction]) and (
            objective_value(near) > objective_value(best)
        ):
            best = near
        if best != start:  # it got better upwards, and the start is known to be worse
            break
    return best
