"""Whether values of a manifest are what the code that uses them relies on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

_MOST = 1e12
"""Larger ones could make scores that are not finite."""
_MAX_CHARACTERS = 2**16
_MAX_KNOTS = 1000
"""Each costs time for every score."""


def check_finite(numbers: Iterable[float]) -> None:
    """Refuse numbers that are not finite, or huge, and whole ones.

    Raises:
        TypeError: There are some.
    """
    for number in numbers:
        if type(number) is not float or not abs(number) <= _MOST:
            raise TypeError(
                f"{str(number)[:40]} is no number with a decimal point from -{_MOST:g} to {_MOST:g}"
            )


def check_texts(texts: Iterable[object]) -> None:
    """Refuse values that are no texts, and huge ones.

    Raises:
        TypeError: There are some.
    """
    for text in texts:
        if not isinstance(text, str) or len(text) > _MAX_CHARACTERS:
            raise TypeError(f"{text!r:.40} is not a text of at most {_MAX_CHARACTERS} characters")


def check_bends(name: str, knots: tuple[float, ...], slopes: tuple[float, ...]) -> None:
    """Refuse a line with bends that does not rise everywhere.

    Args:
        name: Of the scorer.
        knots: Where it bends.
        slopes: Of its pieces.

    Raises:
        TypeError: It does not.
    """
    check_knots(name, knots)
    if len(slopes) != len(knots) + 1 or min(slopes) <= 0:
        raise TypeError(f"the slopes of {name!r}, {slopes}, expected {len(knots) + 1} above 0")


def check_knots(name: str, knots: tuple[int | float, ...]) -> None:
    """Refuse knots that do not rise, or too many.

    Args:
        name: Of the scorer.
        knots: Numbers.

    Raises:
        TypeError: They don't.
    """
    if not 1 <= len(knots) <= _MAX_KNOTS:
        raise TypeError(f"{name!r} has {len(knots)} knots, expected 1 to {_MAX_KNOTS}")
    if any(a >= b for a, b in pairwise(knots)):
        raise TypeError(f"the knots of {name!r}, {knots}, do not rise")


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
