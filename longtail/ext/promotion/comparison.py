"""Comparison of canary and default: which rates are certainly worse, and by how much."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from longtail.ext.promotion.arms import Arm
from longtail.ext.promotion.rules import NOT_WORSE, PromotionRules
from longtail.service.telemetry.sequential import Rate, RateDifference, rate_difference

_NUM_MEASURES = 3


@dataclass(frozen=True, slots=True)
class Measure:
    """A rate of both versions for which lower is better.

    Attributes:
        name: The event that is counted.
        canary: Its rate for the canary.
        default: Its rate for the default.
        difference: The canary's rate minus the default's, with bounds that hold at all times.
        margin: The largest accepted difference.
    """

    name: str
    canary: Rate
    default: Rate
    difference: RateDifference
    margin: float

    @property
    def is_harm(self) -> bool:
        """Whether the canary is certainly worse, and by more than the margin on average."""
        return self.difference.lower > 0 and self.difference.estimate > self.margin

    @property
    def is_safe(self) -> bool:
        """Whether the canary is certainly not worse by the margin."""
        return self.difference.upper < self.margin

    def in_words(self) -> str:
        """Return the figures in a sentence."""
        return (
            f"{self.name}: {100 * self.canary.mean:.2f} % of {self.canary.count:.0f} with the "
            f"canary, {100 * self.default.mean:.2f} % of {self.default.count:.0f} with the "
            f"default, a difference from {100 * self.difference.lower:.2f} to "
            f"{100 * self.difference.upper:.2f} points"
        )


@dataclass(frozen=True, slots=True)
class ArmComparison:
    """Both versions by all measures.

    Attributes:
        requests: Number of requests to the canary.
        measures: Failed requests, slow answers, and labels that people rejected.
    """

    requests: float
    measures: tuple[Measure, ...]

    def harms(self) -> list[str]:
        """Return the rates that are certainly worse, as sentences."""
        return [f"worse for certain: {each.in_words()}" for each in self.measures if each.is_harm]

    def doubts(self, rules: PromotionRules) -> list[str]:
        """Return the reasons against a promotion at the end of the canary, as sentences."""
        found = self.harms()
        if self.requests < rules.min_requests:
            found.append(
                f"the canary got {self.requests:.0f} requests, of {rules.min_requests} that the "
                "rule min_requests asks for; give it more minutes, or a larger share"
            )
        if rules.canary_require == NOT_WORSE:
            # People judge few labels: none of these need be shown.
            found += [
                f"not shown to be worse by less than {100 * each.margin:g} points: "
                f"{each.in_words()}"
                for each in self.measures[:2]
                if not each.is_safe and not each.is_harm
            ]
        return found

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain dictionaries; rates are fractions."""
        return asdict(self)


def compare_arms(
    canary: Arm, default: Arm, slow_bound_s: float, rules: PromotionRules
) -> ArmComparison:
    """Compare the counts since the canary began.

    The measures share the significance of the rules, so that an equal canary is called worse in
    any of them, at any time, with at most that probability.

    Args:
        canary: Counters of the version on trial.
        default: Counters of the default, over the same time.
        slow_bound_s: Answers that take longer are slow.
        rules: Margins and significance.
    """
    both = (canary, default)
    level = rules.canary_significance / _NUM_MEASURES

    def measure(name: str, margin: float, first: Rate, second: Rate) -> Measure:
        return Measure(name, first, second, rate_difference(first, second, level), margin)

    slow = f"answers slower than {slow_bound_s:g} s"
    return ArmComparison(
        canary.requests,
        (
            measure("requests that fail", rules.failure_margin, *map(_failed, both)),
            measure(slow, rules.slow_margin, *(_slow(arm, slow_bound_s) for arm in both)),
            measure("labels that people reject", rules.feedback_margin, *map(_rejected, both)),
        ),
    )


def _failed(arm: Arm) -> Rate:
    return Rate(arm.failed, arm.requests)


def _slow(arm: Arm, bound_s: float) -> Rate:
    return Rate(arm.slow(bound_s), arm.answered)


def _rejected(arm: Arm) -> Rate:
    return Rate(arm.judged - arm.accepted, arm.judged)
