"""A canary from its start to its end: begun, watched, then activated or ended automatically.

Every step is logged before it is taken. A run that is stopped and started again on the same log
finishes its work: it watches the canary to the logged time, and carries out a logged decision.
Only a complete look at the service at the end can promote.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from longtail.ext.promotion.comparison import Arm, ArmComparison, compare_arms, read_arms
from longtail.ext.promotion.log import PromotionLog
from longtail.ext.promotion.rules import PromotionRules
from longtail.ext.promotion.verdict import Decision, Pair
from longtail.models.errors import ConfigError, RequestError
from longtail.service.client.calls import NEVER, ClientError, ProblemError, Retry
from longtail.service.client.client import Client
from longtail.service.schemas.models import ModelSummary

logger = logging.getLogger(__name__)

_K = 5
_RETRY = Retry(max_wait_s=10.0)


@dataclass(frozen=True, slots=True)
class _Start:
    """How a canary began.

    Attributes:
        until: Time of its end, in seconds since 1970.
        arms: What had been counted before of candidate and default.
        slow_bound_s: Answers that take longer are slow.
    """

    until: float
    arms: tuple[Arm, Arm]
    slow_bound_s: float

    def to_json(self) -> dict[str, Any]:
        arms = [arm.to_json() for arm in self.arms]
        return {"until": self.until, "counted_before": arms, "slow_bound_s": self.slow_bound_s}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> _Start:
        candidate, default = (Arm.from_json(arm) for arm in content["counted_before"])
        return cls(content["until"], (candidate, default), content["slow_bound_s"])


def try_on_service(
    url: str,
    key: str | None,
    log: PromotionLog,
    pair: Pair,
    rules: PromotionRules,
    texts: Sequence[str],
) -> Decision:
    """Try a candidate on a service, or go on with a trial that was stopped.

    Args:
        url: URL of the service.
        key: An admin key; None where it needs none.
        log: The log of every step.
        pair: Both versions.
        rules: The rules of the canary.
        texts: Held-out texts that both versions are asked about.
    """
    with Client(url, key=key, retry=_RETRY) as client:
        return CanaryWatch(client, log, pair, rules).run(texts)


def check_access(url: str, key: str | None) -> None:
    """Check, before anything is judged, that a key may try a version on a service.

    A service that does not answer is reported when the trial begins.
    """
    with Client(url, key=key, retry=NEVER) as client:
        try:
            client.check_access()
        except ProblemError as error:
            raise ConfigError(
                f"--url {url!r} does not take this admin key ({error}); name the variable that "
                "holds one with --api-key-env"
            ) from error
        except ClientError as error:
            logger.warning("%s", error)


class CanaryWatch:
    """Tries one candidate on a service."""

    def __init__(
        self,
        client: Client,
        log: PromotionLog,
        pair: Pair,
        rules: PromotionRules,
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare; nothing is asked yet.

        Args:
            client: Of the service, with an admin key.
            log: The log of every step.
            pair: Both versions.
            rules: Of the canary.
            now: The time, in seconds since 1970.
            sleep: Waits some seconds.
        """
        self._client = client
        self._log = log
        self._pair = pair
        self._rules = rules
        self._now = now
        self._sleep = sleep
        self._seen: list[Arm] | None = None
        self._begun_with: dict[str, float] = {}

    def run(self, texts: Sequence[str]) -> Decision:
        """Begin a canary, or go on with one, and carry out what it comes to.

        Args:
            texts: Both versions are asked for their labels, to see whether they agree.
        """
        lines = self._log.unfinished(self._pair.candidate_digest)
        lines = [x for x in lines if x["current_digest"] == self._pair.current_digest]
        if lines and lines[-1]["event"] == "decided":
            return self._carry_out(Decision.from_json(lines[-1]))
        if lines:
            start = _Start.from_json(lines[-1])
            decision = self._resumed() or self._watched(start)
        else:
            start = self._prepared()
            self._note("canary", start.to_json())
            decision = self._begun(texts) or self._watched(start)
        decision = replace(decision, figures={**self._begun_with, **decision.figures})
        self._note("decided", decision.to_json())
        return self._carry_out(decision)

    def _prepared(self) -> _Start:
        """Return how the canary begins, after a look at the served versions."""
        pair = self._pair
        by_number = {each.version: each for each in self._client.models().models}
        default, candidate = by_number.get(pair.current), by_number.get(pair.candidate)
        if default is None or not default.default or default.digest != pair.current_digest:
            raise RequestError(
                f"the service does not answer with version {pair.current} of this registry by "
                "default; name the registry that it serves, and let it follow its 'current'"
            )
        if candidate is None or candidate.digest != pair.candidate_digest:
            raise RequestError(
                f"the service has no version {pair.candidate} as this registry has it; name the "
                "registry that it serves"
            )
        if _has_canary(by_number.values()):
            raise RequestError("the service tries a canary already; end that first")
        candidate_arm, default_arm = self._arms()
        return _Start(
            until=self._now() + 60 * self._rules.minutes,
            arms=(candidate_arm, default_arm),
            slow_bound_s=default_arm.slow_bound(),
        )

    def _begun(self, texts: Sequence[str]) -> Decision | None:
        """Start the canary; return why it ends at once, if it does."""
        try:
            self._client.set_canary(self._pair.candidate, self._rules.share)
            agreement = self._agreement(texts)
        except ClientError as error:
            return Decision(False, (f"the service can't answer with the candidate: {error}",))
        self._begun_with = {"agreement": agreement}
        if agreement < self._rules.min_agreement:
            reason = (
                f"both versions have {100 * agreement:.0f} % of their best labels in common, of "
                f"{100 * self._rules.min_agreement:.0f} % that the rule min_agreement asks for; "
                "lower it with --set min_agreement=... if so large a change is meant"
            )
            return Decision(False, (reason,))
        logger.info("canary begun, agreement=%.3f", agreement)
        return None

    def _resumed(self) -> Decision | None:
        """Return why a canary that was begun before ends at once, if it does."""
        try:
            models = self._client.models().models
        except ClientError:
            return None  # as at any other look
        if self._is_on(models):
            return None
        reason = "the run was stopped, and the canary was not there when it went on; try again"
        return Decision(False, (reason,))

    def _watched(self, start: _Start) -> Decision:
        """Look at the canary until it harms, the service can't be seen, or its time is over."""
        seen_at = self._now()
        while True:
            left_s = start.until - self._now()
            every_s = self._rules.look_every_s
            self._sleep(min(every_s, left_s) if left_s > 0 else every_s)
            is_over = self._now() >= start.until
            try:
                decision = self._look(start, is_over=is_over)
                seen_at = self._now()
            except ClientError as error:
                blind_s = self._now() - seen_at
                logger.warning("the service can't be seen: %s", error)
                decision = None
                if blind_s >= self._rules.max_blind_s:
                    decision = Decision(
                        False, (f"the service could not be seen for {blind_s:.0f} s: {error}",)
                    )
            if decision is not None:
                return decision

    def _look(self, start: _Start, *, is_over: bool) -> Decision | None:
        """Return the decision that follows from the service's counters; None: go on."""
        if not self._is_on(self._client.models().models):
            return Decision(False, ("the canary was ended, or changed, by somebody else",))
        arms = self._arms()
        candidate, default = _since(start.arms, arms)
        is_anew = self._seen is not None and None in _since(self._seen, arms)
        self._seen = arms
        if candidate is None or default is None or is_anew:
            return Decision(False, ("the service was restarted, and counts again from 0",))
        compared = compare_arms(candidate, default, start.slow_bound_s, self._rules)
        figures = {"compared": compared.to_json()}
        if harms := compared.harms():
            return Decision(False, tuple(harms), figures)
        if not is_over:
            return None
        doubts = compared.doubts(self._rules)
        return Decision(not doubts, tuple(doubts) or _grounds(compared), figures)

    def _carry_out(self, decision: Decision) -> Decision:
        """Carry out a decision; return it, or a decision that says why it failed."""
        if decision.promote:
            try:
                self._client.activate(self._pair.candidate)
            except ProblemError as error:
                decision = Decision(
                    False, (f"the service can't activate the candidate: {error}",), decision.figures
                )
                self._note("decided", decision.to_json())
        if not decision.promote and self._is_canary():
            self._client.end_canary()
        self._note("done", {"verdict": decision.to_json()["verdict"]})
        return decision

    def _is_canary(self) -> bool:
        """Whether the candidate gets a share now: another canary is not ours to end."""
        return any(
            each.version == self._pair.candidate and each.traffic_share and not each.default
            for each in self._client.models().models
        )

    def _is_on(self, models: Sequence[ModelSummary]) -> bool:
        shares = {each.version: each.traffic_share for each in models}
        is_default = any(x.version == self._pair.current and x.default for x in models)
        share = shares.get(self._pair.candidate, 0.0)
        return is_default and abs(share - self._rules.share) < 1e-9

    def _arms(self) -> list[Arm]:
        return read_arms(self._client.metrics(), self._pair.candidate, self._pair.current)

    def _agreement(self, texts: Sequence[str]) -> float:
        """Return the mean share of the best labels that both versions give to a text."""
        found = []
        for version in (self._pair.candidate, self._pair.current):
            results = self._client.predict(list(texts), k=_K, version=version).results
            found.append([{label.id for label in result.labels} for result in results])
        shares = [
            len(first & second) / max(1, len(first), len(second))
            for first, second in zip(*found, strict=True)
        ]
        return sum(shares) / len(shares)

    def _note(self, event: Any, fields: Mapping[str, Any]) -> None:
        rules = {"rules": self._rules.to_json()} if event == "canary" else {}
        self._log.append(event, {**self._pair.to_json(), **fields, **rules})


def _grounds(compared: ArmComparison) -> tuple[str, ...]:
    return tuple(f"not worse for certain: {each.in_words()}" for each in compared.measures)


def _since(before: Sequence[Arm], arms: Sequence[Arm]) -> list[Arm | None]:
    return [now.since(then) for now, then in zip(arms, before, strict=True)]


def _has_canary(models: Any) -> bool:
    return any(each.traffic_share and not each.default for each in models)
