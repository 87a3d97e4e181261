"""Log-odds along a line with bends, and by rarity, against a sum over pieces."""

import math
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longtail.models.bundle.manifest import Calibration, RarityLine
from longtail.models.scorers.calibration import (
    largest_probabilities,
    log_odds_of,
    probabilities_of,
)

BENT = Calibration(knots=(-1.0, 2.0, 2.5), slopes=(0.5, 1.0, 4.0, 0.25), intercept=-3.0)
RARE = RarityLine(counts=(0, 3, 30), shifts=(-2.0, 1.5, 0.5), factors=(0.5, 2.0, 1.0))


def by_hand(calibration: Calibration, value: float) -> float:
    """The oracle: walk from the first knot to the value."""
    knots, slopes = calibration.knots, calibration.slopes
    if value < knots[0]:
        return calibration.intercept - slopes[0] * (knots[0] - value)
    total = calibration.intercept
    for place, knot in enumerate(knots):
        stop = knots[place + 1] if place + 1 < len(knots) else math.inf
        total += slopes[place + 1] * (min(value, stop) - knot)
        if value <= stop:
            break
    return total


@given(st.floats(-100, 100, width=32))
def test_log_odds_follow_the_line(value):
    (found,) = log_odds_of(BENT, np.array([value], dtype=np.float32))
    assert math.isclose(found, by_hand(BENT, value), abs_tol=1e-9)


@given(st.floats(-100, 100, width=32), st.integers(0, 10**6))
def test_log_odds_of_a_label_lie_between_the_knots_of_its_documents(value, count):
    calibration, (base,) = replace(BENT, rarity=RARE), [by_hand(BENT, value)]
    place, knots = math.log1p(count), [math.log1p(each) for each in RARE.counts]
    above = next((i for i, knot in enumerate(knots) if knot >= place), None)
    if above is None:
        wanted = RARE.shifts[-1] + RARE.factors[-1] * base
    elif above == 0:
        wanted = RARE.shifts[0] + RARE.factors[0] * base
    else:
        low, high = ((RARE.shifts[i] + RARE.factors[i] * base) for i in (above - 1, above))
        share = (place - knots[above - 1]) / (knots[above] - knots[above - 1])
        wanted = low + share * (high - low)
    values, counts = np.array([value], dtype=np.float32), np.array([count])
    assert math.isclose(log_odds_of(calibration, values, counts)[0], wanted, abs_tol=1e-9)
    assert log_odds_of(calibration, values)[0] == log_odds_of(BENT, values)[0]
    most = largest_probabilities(calibration, values)
    assert (probabilities_of(calibration, values, counts) <= most * (1 + 1e-12)).all()


def test_the_largest_probability_is_that_of_a_knot():
    values, calibration = np.linspace(-5, 5, 21), replace(BENT, rarity=RARE)
    every = [probabilities_of(calibration, values, np.full(21, n)) for n in range(200)]
    np.testing.assert_allclose(largest_probabilities(calibration, values), np.max(every, axis=0))
