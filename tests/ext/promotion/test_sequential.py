"""Bounds that hold at any time: oracles on a grid, and error rates under continuous looking."""

import math

import numpy as np
import pytest
from scipy import integrate

from longtail.ext.promotion.comparison import Arm, compare_arms
from longtail.ext.promotion.rules import PromotionRules
from longtail.service.telemetry.sequential import rate_bounds

NUM_CANARIES = 400


def bounds_of(total: float, count: float, significance: float = 0.05) -> tuple[float, float]:
    lower, upper = rate_bounds(np.array([total]), np.array([count]), significance)
    return float(lower[0]), float(upper[0])


@pytest.mark.parametrize(("total", "count"), [(3.0, 10.0), (0.0, 8.0), (5.0, 5.0), (2.5, 7.0)])
def test_the_interval_is_where_the_mixture_has_not_reached_its_bound(total, count):
    """M by integration over q, at every rate of a fine grid."""

    def density(q: float) -> float:
        return 1 / (math.pi * math.sqrt(q * (1 - q)))  # Beta(1/2, 1/2)

    def likelihood(q: float) -> float:
        return q**total * (1 - q) ** (count - total)

    mixed, _ = integrate.quad(lambda q: density(q) * likelihood(q), 0, 1)
    grid = np.linspace(0.0005, 0.9995, 2000)
    inside = [mu for mu in grid if mixed / likelihood(mu) < 20]
    lower, upper = bounds_of(total, count)
    assert lower == pytest.approx(inside[0] if total else 0, abs=6e-4)
    assert upper == pytest.approx(inside[-1] if total < count else 1, abs=6e-4)


def canaries(rates: tuple[float, float], seed: int, looks: int = 60) -> tuple[np.ndarray, ...]:
    """Counts of many canaries at each look, of a tenth of the requests: failed and all, twice."""
    rng = np.random.default_rng(seed)
    sizes = (20, 180)
    found = []
    for rate, size in zip(rates, sizes, strict=True):
        failed = rng.binomial(size, rate, (NUM_CANARIES, looks)).cumsum(axis=1)
        counts = np.broadcast_to(size * np.arange(1, looks + 1), failed.shape)
        found += [failed.astype(np.float64), counts.astype(np.float64)]
    return tuple(found)


def share_called_worse(rates: tuple[float, float], seed: int, significance: float) -> float:
    failed, count, failed_before, count_before = canaries(rates, seed)
    lower, _ = rate_bounds(failed, count, significance / 2)
    _, upper = rate_bounds(failed_before, count_before, significance / 2)
    return float((lower > upper).any(axis=1).mean())


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.002, 0.05, 0.5])
def test_equal_rates_are_seldom_called_worse_though_every_look_may_stop(rate):
    assert share_called_worse((rate, rate), 1, significance=0.05) <= 0.05


@pytest.mark.slow
def test_a_worse_canary_is_called_worse():
    assert share_called_worse((0.05, 0.005), 2, significance=0.05) > 0.95


def arm(answered: float, failed: float = 0.0, quick: float | None = None, **more: float) -> Arm:
    return Arm(answered, failed, {0.1: answered if quick is None else quick}, **more)


RULES = PromotionRules()


def test_harm_is_told_by_each_measure():
    good = arm(900.0, judged=300.0, accepted=240.0)
    worse = {
        "requests that fail": arm(50.0, failed=50.0),
        "answers slower than 0.1 s": arm(100.0, quick=40.0),
        "labels that people reject": arm(100.0, judged=100.0, accepted=20.0),
    }
    for name, canary in worse.items():
        (harm,) = compare_arms(canary, good, 0.1, RULES).harms()
        assert harm.startswith(f"worse for certain: {name}: ")
    assert compare_arms(arm(100.0), good, 0.1, RULES).harms() == []


def test_at_the_end_there_must_be_requests_and_where_asked_for_proof():
    few = compare_arms(arm(50.0), arm(900.0), 0.1, RULES)
    (doubt,) = few.doubts(RULES)
    assert "the canary got 50 requests, of 100" in doubt
    strict = PromotionRules(canary_require="not-worse")
    some = compare_arms(arm(200.0), arm(1800.0), 0.1, strict)
    assert some.doubts(RULES) == []
    (doubt,) = some.doubts(strict)
    assert "not shown to be worse by less than 0.5 points: requests that fail" in doubt
    many = compare_arms(arm(20_000.0), arm(180_000.0), 0.1, strict)
    assert many.doubts(strict) == []
