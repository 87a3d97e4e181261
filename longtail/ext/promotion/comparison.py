"""Canary and default side by side: their counters, the rules, and which is worse for certain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from longtail.ext.promotion.rules import NOT_WORSE, PromotionRules
from longtail.service.telemetry.sequential import Rate, RateDifference, rate_difference

_SECONDS = "longtail_version_answer_duration_seconds"
_FAILURES = "longtail_version_failures_total"
_ACCEPTED = "longtail_feedback_accepted_share"
_QUICK_SHARE = 0.95
_LEAST_ANSWERS = 100
_SLOW_S = 1.0
"""What is slow where the default has answered too little to say; it is a bound of a bucket."""


@dataclass(frozen=True, slots=True)
class Arm:
    """Counters of one model version, of requests that did not name a version.

    Attributes:
        answered: Requests with an answer.
        failed: Requests without one, whatever for.
        within: Cumulative answer counts, keyed by histogram bucket bound in seconds.
        judged: Entries of feedback with labels that were accepted or rejected.
        accepted: Sum over these of the share that was accepted.
    """

    answered: float = 0.0
    failed: float = 0.0
    within: Mapping[float, float] = field(default_factory=dict)
    judged: float = 0.0
    accepted: float = 0.0

    @property
    def requests(self) -> float:
        """All requests."""
        return self.answered + self.failed

    def slow(self, bound_s: float) -> float:
        """Return how many answers took longer than a bound of the histogram."""
        return self.answered - self.within.get(bound_s, 0.0)

    def since(self, before: Arm) -> Arm | None:
        """Return the counts since another reading; None where the counters were reset."""
        arm = Arm(
            answered=self.answered - before.answered,
            failed=self.failed - before.failed,
            within={
                bound: count - before.within.get(bound, 0.0) for bound, count in self.within.items()
            },
            judged=self.judged - before.judged,
            accepted=self.accepted - before.accepted,
        )
        return None if min(arm.answered, arm.failed, arm.judged) < 0 else arm

    def slow_bound(self) -> float:
        """Return the smallest bucket bound that covers 95 % of the answers, in seconds."""
        if self.answered < _LEAST_ANSWERS:
            return _SLOW_S
        enough = [x for x, n in self.within.items() if n >= _QUICK_SHARE * self.answered]
        return min(enough, default=_SLOW_S)

    def to_json(self) -> dict[str, Any]:
        """Return everything, with the bounds as text."""
        return asdict(self) | {"within": {str(bound): n for bound, n in self.within.items()}}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Arm:
        """Read what `to_json` returned."""
        within = {float(bound): n for bound, n in content["within"].items()}
        return cls(**{**content, "within": within})


def read_arms(exposition: str, *versions: int) -> list[Arm]:
    """Return what metrics in Prometheus' text format say of versions.

    Args:
        exposition: The answer of `GET /metrics`.
        versions: Those to look for; what has not answered yet has zeros.
    """
    counted: dict[str, dict[str, float]] = {str(version): {} for version in versions}
    within: dict[str, dict[float, float]] = {name: {} for name in counted}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            name = sample.labels.get("version")
            if name not in counted:
                continue
            if sample.name == f"{_SECONDS}_bucket":
                within[name][float(sample.labels["le"])] = sample.value
            else:
                counted[name][sample.name] = sample.value
    return [_arm_of(counted[name], within[name]) for name in counted]


def _arm_of(counted: Mapping[str, float], within: Mapping[float, float]) -> Arm:
    return Arm(
        answered=counted.get(f"{_SECONDS}_count", 0.0),
        failed=counted.get(_FAILURES, 0.0),
        within={bound: n for bound, n in within.items() if bound != float("inf")},
        judged=counted.get(f"{_ACCEPTED}_count", 0.0),
        accepted=counted.get(f"{_ACCEPTED}_sum", 0.0),
    )


_NUM_MEASURES = 3


@dataclass(frozen=True, slots=True)
class Measure:
    """One rate that had better be low, of both versions.

    Attributes:
        name: What happens.
        canary: How often to the canary.
        default: How often to the default.
        difference: How much more often to the canary, with bounds that hold at any time.
        margin: How much more often it may.
    """

    name: str
    canary: Rate
    default: Rate
    difference: RateDifference
    margin: float

    @property
    def is_harm(self) -> bool:
        """Whether the canary is worse for certain, and by more than the margin as it seems."""
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
    """Both versions, by all measures.

    Attributes:
        requests: Of the canary.
        measures: Failed requests, slow answers, and labels that people rejected.
    """

    requests: float
    measures: tuple[Measure, ...]

    def harms(self) -> list[str]:
        """Return the significant losses, in sentences."""
        return [f"worse for certain: {each.in_words()}" for each in self.measures if each.is_harm]

    def doubts(self, rules: PromotionRules) -> list[str]:
        """Return what speaks against a promotion at the end of the canary, in sentences."""
        reasons = self.harms()
        if self.requests < rules.min_requests:
            reasons.append(
                f"the canary got {self.requests:.0f} requests, of {rules.min_requests} that the "
                "rule min_requests asks for; give it more minutes, or a larger share"
            )
        if rules.canary_require == NOT_WORSE:
            # People judge few labels: none of these need be shown.
            reasons += [
                f"not shown to be worse by less than {100 * measure.margin:g} points: "
                f"{measure.in_words()}"
                for measure in self.measures[:2]
                if not measure.is_safe and not measure.is_harm
            ]
        return reasons

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
        canary: Of the version on trial.
        default: Of the other one, over the same time.
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
