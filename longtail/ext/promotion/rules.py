"""The conditions under which a candidate replaces the current version, and their settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from longtail.models.errors import ConfigError

BETTER = "better"
NOT_WORSE = "not-worse"
NO_HARM = "no-harm"


@dataclass(frozen=True, slots=True)
class PromotionRules:
    """The conditions of a promotion; shares and metrics are fractions.

    Attributes:
        require: "better": better in at least one metric, and not worse in the others; "not-worse":
            only the latter.
        significance: Largest error probability of each one-sided paired test.
        margin: How much worse P@5, nDCG@5 and PSP@5 may be at most: a candidate must show that it
            is not worse by so much.
        band_margin: How much worse the labels of one frequency band, or the judged labels of the
            feedback, may be before a significant loss is a reason to refuse.
        min_documents: Documents that a test needs.
        max_slowdown: Time a text, as a multiple of the current version's.
        max_size_ratio: Bytes of the files, about the memory, as a multiple of the current one's.
        max_calibration_rise: How much the calibration error of the best five labels may rise.
        max_lost_labels: Labels of the current version that the candidate may lack.
        share: The canary's share of the requests that name no version.
        minutes: Longest duration of the canary in minutes.
        look_every_s: Seconds between looks at the canary.
        canary_require: "no-harm": no harm was seen by the end; "not-worse": it must be shown that
            failures and slow answers are more frequent by no more than their margins.
        canary_significance: Largest probability of calling an equal canary worse, however often
            it is looked at.
        min_requests: Answers of the canary without which it isn't promoted.
        min_agreement: Share of the best five labels of held-out texts that both versions must give
            in common when they are served.
        failure_margin: How much more of its requests may fail.
        slow_margin: How much more of its answers may be slow: slower than nineteen in twenty of the
            default's before the canary.
        feedback_margin: How much less of the labels that people judge may be accepted.
        max_blind_s: Seconds without an answer from the service after which the canary ends.
    """

    require: str = BETTER
    significance: float = 0.025
    margin: float = 0.01
    band_margin: float = 0.02
    min_documents: int = 30
    max_slowdown: float = 1.5
    max_size_ratio: float = 1.5
    max_calibration_rise: float = 0.02
    max_lost_labels: int = 0
    share: float = 0.1
    minutes: float = 10.0
    look_every_s: float = 5.0
    canary_require: str = NO_HARM
    canary_significance: float = 0.05
    min_requests: int = 100
    min_agreement: float = 0.6
    failure_margin: float = 0.005
    slow_margin: float = 0.05
    feedback_margin: float = 0.05
    max_blind_s: float = 60.0

    def __post_init__(self) -> None:
        """Refuse what can't be meant."""
        for each in fields(self):
            _check(each.name, getattr(self, each.name))

    def to_json(self) -> dict[str, Any]:
        """Return all rules by name."""
        return asdict(self)


_WORDS = {"require": (BETTER, NOT_WORSE), "canary_require": (NO_HARM, NOT_WORSE)}
_BELOW_ONE = frozenset({"significance", "canary_significance", "share"})
"""Rules that are more than 0 and less than 1."""
_POSITIVE = frozenset({"max_slowdown", "max_size_ratio", "minutes", "look_every_s", "max_blind_s"})
_COUNTS = {"min_documents": 2, "max_lost_labels": 0, "min_requests": 1}
"""Whole numbers, and the least of each."""


def rules_of(
    settings: Sequence[str], share: float | None = None, minutes: float | None = None
) -> PromotionRules:
    """Return the rules with some set as on a command line.

    Args:
        settings: Settings of the form "name=value".
        share: Value of the rule of this name; None: unchanged.
        minutes: As `share`.
    """
    values: dict[str, Any] = {"share": share, "minutes": minutes}
    values = {name: value for name, value in values.items() if value is not None}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or name not in PromotionRules.__dataclass_fields__:
            names = ", ".join(each.name for each in fields(PromotionRules))
            raise ConfigError(
                f"--set {setting!r}: expected RULE=VALUE, the rule being one of {names}"
            )
        values[name] = _value_of(name, text)
    return replace(PromotionRules(), **values)


def _value_of(name: str, text: str) -> str | int | float:
    if name in _WORDS:
        return text
    try:
        return int(text) if name in _COUNTS else float(text)
    except ValueError:
        kind = "a whole number" if name in _COUNTS else "a number"
        raise ConfigError(f"--set {name}: got {text!r}, expected {kind}") from None


def _check(name: str, value: Any) -> None:
    if name in _WORDS:
        is_good, expected = value in _WORDS[name], " or ".join(_WORDS[name])
    elif name in _COUNTS:
        is_good, expected = value >= _COUNTS[name], f"at least {_COUNTS[name]}"
    elif name in _BELOW_ONE:
        is_good, expected = 0 < value < 1, "more than 0 and less than 1"
    elif name in _POSITIVE:
        is_good, expected = 0 < value < math.inf, "a number above 0"
    else:
        is_good, expected = 0 <= value <= 1, "a fraction from 0 to 1"
    if not is_good:
        raise ConfigError(f"rule {name}: got {value!r}, expected {expected}")
