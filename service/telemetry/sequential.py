"""Bounds on rates that hold however often they are looked at, and bounds on their difference.

An interval for a number of trials that was fixed in advance errs more and more often the more often
one looks and may stop. A confidence sequence (Howard, Ramdas, McAuliffe & Sekhon 2021) holds at all
times at once: with a probability of 1 - alpha the rate is never outside of it.

Values X_1, X_2, ... in [0, 1] of mean mu make, for every q, a supermartingale that begins at 1:

    prod_i (q / mu)^X_i ((1 - q) / (1 - mu))^(1 - X_i),

for E exp(lambda X) <= 1 - mu + mu exp(lambda) by convexity. So does its mixture over q drawn from
a Beta(a, b), with the sum S of n values (the beta-binomial mixture; Howard et al. 2021, Prop. 7;
Robbins 1970):

    M_n(mu) = B(a + S, b + n - S) / (B(a, b) mu^S (1 - mu)^(n - S)),

and by Ville's inequality M_n(mu) ever reaches 1 / alpha with a probability of at most alpha. The
interval is all mu for which it has not. It is exact for rates near 0, where failures are, and needs
no normal approximation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy.special import betaln, xlog1py, xlogy

_A = _B = 0.5
"""Parameters of the mixture: Jeffreys' prior, narrow for all rates and numbers of values."""
_STEPS = 60
"""Halvings of an interval: as many as float64 can tell apart."""


def rate_bounds(
    sums: Float64[np.ndarray, "*shape"], counts: Float64[np.ndarray, "*shape"], significance: float
) -> tuple[Float64[np.ndarray, "*shape"], Float64[np.ndarray, "*shape"]]:
    """Return the lower and upper bounds of the means of values in [0, 1], at any time.

    Args:
        sums: Of the values.
        counts: How many there are; of none the bounds are 0 and 1.
        significance: alpha: probability, at most, that the mean is ever outside.
    """
    mean = np.divide(sums, counts, out=np.full_like(sums, 0.5), where=counts > 0)
    lower = _crossing(np.zeros_like(mean), mean, sums, counts, significance)
    upper = _crossing(np.ones_like(mean), mean, sums, counts, significance)
    return lower, upper


def _crossing(
    outside: Float64[np.ndarray, "*shape"],
    inside: Float64[np.ndarray, "*shape"],
    sums: Float64[np.ndarray, "*shape"],
    counts: Float64[np.ndarray, "*shape"],
    significance: float,
) -> Float64[np.ndarray, "*shape"]:
    """Return where M reaches 1 / alpha between the mean and an end; the end where it doesn't."""
    never = _log_mixture(outside, sums, counts) < -np.log(significance)
    ends = outside.copy()
    for _ in range(_STEPS):
        middle = (outside + inside) / 2
        is_inside = _log_mixture(middle, sums, counts) < -np.log(significance)
        inside = np.where(is_inside, middle, inside)
        outside = np.where(is_inside, outside, middle)
    return np.where(never, ends, outside)


def _log_mixture(
    mean: Float64[np.ndarray, "*shape"],
    sums: Float64[np.ndarray, "*shape"],
    counts: Float64[np.ndarray, "*shape"],
) -> Float64[np.ndarray, "*shape"]:
    """Return log M_n(mu); it is least at mu = S / n and rises to both sides."""
    misses = counts - sums
    mixed = betaln(_A + sums, _B + misses) - betaln(_A, _B)
    log_m: Float64[np.ndarray, "*shape"] = mixed - xlogy(sums, mean) - xlog1py(misses, -mean)
    return log_m


@dataclass(frozen=True, slots=True)
class Rate:
    """Values in [0, 1] of one version.

    Attributes:
        total: Their sum; of what happens or doesn't, how often it did.
        count: How many there are.
    """

    total: float
    count: float

    @property
    def mean(self) -> float:
        """Their mean; 0 of none."""
        return self.total / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class RateDifference:
    """How much higher the rate of one version is than that of another.

    Attributes:
        estimate: The difference of the means.
        lower: It is at least this, ...
        upper: ... and at most this, at all times with the same probability.
    """

    estimate: float
    lower: float
    upper: float


def rate_difference(first: Rate, second: Rate, significance: float) -> RateDifference:
    """Return bounds of the difference of two rates, at any time, whatever the two counts are.

    Each rate has half of the significance.

    Args:
        first: Of the version in question.
        second: Of the one that it is compared with.
        significance: Probability, at most, that the difference is ever outside.
    """
    sums = np.array([first.total, second.total], dtype=np.float64)
    counts = np.array([first.count, second.count], dtype=np.float64)
    lower, upper = rate_bounds(sums, counts, significance / 2)
    return RateDifference(
        estimate=first.mean - second.mean,
        lower=float(lower[0] - upper[1]),
        upper=float(upper[0] - lower[1]),
    )
