"""Counters of each model version, read from the metrics of a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

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
        failed: Requests without an answer, for any reason.
        within: Cumulative answer counts, keyed by histogram bucket bound in seconds.
        judged: Entries of feedback with labels that were accepted or rejected.
        accepted: Sum over these entries of the share of accepted labels.
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
        """Return the counts since another reading; None if the counters were reset."""
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
    """Return the counters of versions from metrics in Prometheus' text format.

    Args:
        exposition: The answer of `GET /metrics`.
        versions: The versions to look for; one that has not answered yet has zeros.
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
