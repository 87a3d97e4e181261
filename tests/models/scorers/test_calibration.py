"""Log-odds along a line with bends, against a sum over its pieces."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longtail.models.bundle.manifest import Calibration
from longtail.models.scorers.calibration import IDENTITY, log_odds_of, probabilities_of

BENT = Calibration(knots=(-1.0, 2.0, 2.5), slopes=(0.5, 1.0, 4.0, 0.25), intercept=-3.0)


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
def test_log_odds_follow_the_line(value: float) -> None:
    (found,) = log_odds_of(BENT, np.array([value], dtype=np.float32))
    assert math.isclose(found, by_hand(BENT, value), abs_tol=1e-9)


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=2, max_size=20))
def test_calibration_keeps_the_order(values: list[float]) -> None:
    ordered = np.sort(np.array(values, dtype=np.float32))
    assert (np.diff(log_odds_of(BENT, ordered)) >= 0).all()
    assert (np.diff(probabilities_of(BENT, ordered)) >= 0).all()


def test_a_label_that_is_not_scored_has_probability_0() -> None:
    scores = np.array([[-np.inf, 0.0]], dtype=np.float32)
    assert log_odds_of(BENT, scores)[0, 0] == -np.inf
    assert probabilities_of(BENT, scores)[0, 0] == 0 < probabilities_of(BENT, scores)[0, 1]


def test_the_identity_is_the_sigmoid() -> None:
    scores = np.array([-3.0, 0.0, 1.5], dtype=np.float32)
    np.testing.assert_allclose(probabilities_of(IDENTITY, scores), 1 / (1 + np.exp(-scores)), 1e-6)
