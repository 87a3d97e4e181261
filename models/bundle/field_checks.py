"""Whether values of a manifest are what the code that uses them relies on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise


def check_finite(numbers: Iterable[float]) -> None:
    """Refuse numbers that are not finite, and whole ones.

    Raises:
        TypeError: There are some.
    """
    for number in numbers:
        if type(number) is not float or not math.isfinite(number):
            raise TypeError(f"{number!r} is not a finite number with a decimal point")


def check_bends(name: str, knots: tuple[float, ...], slopes: tuple[float, ...]) -> None:
    """Refuse a line with bends that does not rise everywhere.

    Args:
        name: Of the scorer.
        knots: Where it bends.
        slopes: Of its pieces.

    Raises:
        TypeError: It does not.
    """
    is_rising = all(a < b for a, b in pairwise(knots))
    if not knots or not is_rising:
        raise TypeError(f"the knots of {name!r}, {knots}, do not rise")
    if len(slopes) != len(knots) + 1 or min(slopes) <= 0:
        raise TypeError(f"the slopes of {name!r}, {slopes}, expected {len(knots) + 1} above 0")


def check_names(owner: object, choices: Mapping[str, tuple[object, ...]]) -> None:
    """Refuse names of other things than there are.

    Args:
        owner: Has them as attributes.
        choices: What each may be.

    Raises:
        TypeError: There are some.
    """
    for name, expected in choices.items():
        if (found := getattr(owner, name)) not in expected:
            raise TypeError(f"{name} {found!r}, expected one of {expected}")
