"""e^-x for compiled loops: products and sums alone, so that a loop over it is vector instructions.

e^-x = (e^(-x / 128))^128: a Taylor series of a number near 0, squared seven times. A library's
function would be a call for each number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.models.jit import vectorised

LARGEST = 40.0
"""Of x where e^-x is not 0 for float64; below, 1 + e^-x is 1. For float32 it stays at e^-40."""

_F = np.float32


@vectorised
def exp_of_minus(size: float) -> float:
    """Return e^-size for size >= 0 in float64, with a relative error of 1e-8."""
    x = min(size, LARGEST) * (-1 / 128)
    # 1 + x + x^2 / 2! + ... + x^8 / 8!, by Horner's rule
    series = 1 / 24 + x * (1 / 120 + x * (1 / 720 + x * (1 / 5040 + x * (1 / 40320))))
    power = 1.0 + x * (1.0 + x * (1 / 2 + x * (1 / 6 + x * series)))
    found: float = _to_the_128th(power) if size < LARGEST else 0.0
    return found


@vectorised
def exp_of_minus_float32(size: np.float32) -> np.float32:
    """Return e^-size for size >= 0 in float32, with a relative error of a few millionths."""
    x = min(size, _F(LARGEST)) * _F(-1 / 128)
    # 1 + x + x^2 / 2! + ... + x^5 / 5!
    power = _F(1) + x * (
        _F(1) + x * (_F(1 / 2) + x * (_F(1 / 6) + x * (_F(1 / 24) + x * _F(1 / 120))))
    )
    found: np.float32 = _to_the_128th(power)
    return found


@vectorised
def _to_the_128th(power: Any) -> Any:
    """Return a number's 128th power, in its own precision."""
    power *= power
    power *= power
    power *= power
    power *= power
    power *= power
    power *= power
    power *= power
    return power
