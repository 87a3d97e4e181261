"""Log-odds along a line with bends, against a sum over its pieces."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longtail.models.bundle.manifest import Calibration
from longtail.models.scorers.calibration import log_odds_of

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
def test_log_odds_follow_the_line(value):
    (found,) = log_odds_of(BENT, np.array([value], dtype=np.float32))
    assert math.isclose(found, by_hand(BENT, value), abs_tol=1e-9)
