"""A canary on a service that is played: promoted, rolled back, ended by others, and resumed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from longtail.ext.promotion.canary import CanaryWatch
from longtail.ext.promotion.comparison import Arm, read_arms
from longtail.ext.promotion.log import PromotionLog
from longtail.ext.promotion.rules import PromotionRules
from longtail.ext.promotion.verdict import Pair
from longtail.models.errors import RequestError
from longtail.models.feedback import Entry
from longtail.service.client.calls import ConnectionFailedError, ProblemError
from longtail.service.schemas.base import Problem
from longtail.service.telemetry.metrics import Telemetry

PAIR = Pair(candidate=2, current=1, candidate_digest="new", current_digest="old")
RULES = PromotionRules(minutes=1.0, look_every_s=5.0)


class KilledError(Exception):
    """The process of the watcher ends."""


def refusal(detail: str) -> ProblemError:
    return ProblemError(Problem(type="about:blank", title="Conflict", status=409, detail=detail))


@dataclass
class Played:
    """A service with 100 requests a second, as a client sees it."""

    failing: float = 0.0
    common: int = 4
    on_sleep: Callable[[float], None] = lambda _: None
    telemetry: Telemetry = field(default_factory=Telemetry)
    default: int = 1
    share: float = 0.0
    time: float = 1000.0
    is_away: bool = False
    refused: str = ""
    calls: list[str] = field(default_factory=list)

    def models(self) -> Any:
        self._check()
        shares = {self.default: 1 - self.share} | ({2: self.share} if self.share else {})
        digests = {1: "old", 2: "new"}
        return SimpleNamespace(
            models=[
                SimpleNamespace(
                    version=version,
                    digest=digest,
                    default=version == self.default,
                    traffic_share=shares.get(version, 0.0),
                )
                for version, digest in digests.items()
            ]
        )

    def metrics(self) -> str:
        self._check()
        return self.telemetry.exposition().decode()

    def predict(self, texts: list[str], k: int, version: int) -> Any:
        ids = [str(place if place < self.common else 10 * version + place) for place in range(k)]
        labels = [SimpleNamespace(id=each) for each in ids]
        return SimpleNamespace(results=[SimpleNamespace(labels=labels) for _ in texts])

    def set_canary(self, version: int, share: float) -> None:
        self._do(f"canary {version}")
        self.share = share

    def end_canary(self) -> None:
        self._do("end")
        self.share = 0.0

    def activate(self, version: int) -> None:
        self._do(f"activate {version}")
        self.default, self.share = version, 0.0

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.time += seconds
        self.serve(round(100 * seconds))
        self.on_sleep(self.time - 1000.0)

    def serve(self, count: int) -> None:
        canary = round(count * self.share)
        for number in range(canary):
            if number < round(self.failing * canary):
                self.telemetry.count_failure(2)
            else:
                self.telemetry.observe_answer(2, 0.01)
        for _ in range(count - canary):
            self.telemetry.observe_answer(self.default, 0.01)

    def _check(self) -> None:
        if self.is_away:
            raise ConnectionFailedError("no answer")

    def _do(self, what: str) -> None:
        self._check()
        if what.split()[0] == self.refused:
            raise refusal("no memory")
        self.calls.append(what)


@pytest.fixture
def log(tmp_path):
    return PromotionLog(tmp_path / "promotions.jsonl")


def watch(service: Played, log: PromotionLog, rules: PromotionRules = RULES) -> Any:
    watching = CanaryWatch(service, log, PAIR, rules, now=lambda: service.time, sleep=service.sleep)
    return watching.run(["a text"] * 4)


def events(log: PromotionLog) -> list[str]:
    return [entry["event"] for entry in log.entries()]


def test_a_canary_that_does_no_harm_is_promoted_at_the_end_of_its_time(log):
    service = Played()
    decision = watch(service, log)
    assert decision.promote and service.default == 2
    assert service.calls == ["canary 2", "activate 2"]
    assert service.time == 1060.0
    assert events(log) == ["canary", "decided", "done"]
    assert all(entry["candidate_digest"] == "new" for entry in log.entries())
    assert log.entries()[0]["rules"] == RULES.to_json()
    compared = log.entries()[1]["figures"]["compared"]
    assert compared["requests"] == 600
    assert 0.6 <= log.entries()[1]["figures"]["agreement"] <= 1
    assert "requests that fail: 0.00 % of 600 with the canary" in decision.reasons[0]


def test_a_canary_that_fails_is_rolled_back_long_before_its_end(log):
    service = Played(failing=0.2)
    decision = watch(service, log)
    assert not decision.promote and "worse for certain: requests that fail" in decision.reasons[0]
    assert service.calls == ["canary 2", "end"]
    assert service.time < 1030.0 and (service.default, service.share) == (1, 0.0)


def test_versions_that_do_not_agree_are_rolled_back_at_once(log):
    service = Played(common=1)
    decision = watch(service, log)
    assert "have 20 % of their best labels in common, of 60 %" in decision.reasons[0]
    assert "--set min_agreement=" in decision.reasons[0]
    assert decision.figures == {"agreement": pytest.approx(0.2)}
    assert service.time == 1000.0 and service.calls == ["canary 2", "end"]


def test_a_version_that_can_not_be_activated_is_rolled_back(log):
    service = Played(refused="activate")
    decision = watch(service, log)
    assert not decision.promote and "can't activate the candidate" in decision.reasons[0]
    assert service.calls == ["canary 2", "end"]
    assert events(log) == ["canary", "decided", "decided", "done"]
    assert log.entries()[-1]["verdict"] == "roll back"


def test_a_service_that_was_restarted_counts_anew_and_nothing_is_promoted(log):
    service = Played()

    def restart(seconds: float) -> None:
        if seconds == 30:
            service.telemetry = Telemetry()

    service.on_sleep = restart
    decision = watch(service, log)
    assert not decision.promote and "counts again from 0" in decision.reasons[0]


def test_a_short_time_without_answers_changes_nothing_a_long_one_ends_the_canary(log):
    service = Played()
    service.on_sleep = lambda seconds: setattr(service, "is_away", 10 < seconds < 30)
    assert watch(service, log).promote

    service, away = Played(), PromotionLog(log.path.with_name("away.jsonl"))
    service.on_sleep = lambda seconds: setattr(service, "is_away", 10 < seconds < 71)
    rules = PromotionRules(minutes=1.0, max_blind_s=55.0)
    service.is_away = False
    with pytest.raises(ConnectionFailedError):  # it can't be told to end the canary either
        watch(service, away, rules)
    assert events(away) == ["canary", "decided"] and service.share > 0
    service.is_away = False
    decision = watch(service, away, rules)  # the same command again
    assert not decision.promote and "could not be seen for 55 s" in decision.reasons[0]
    assert service.calls == ["canary 2", "end"] and events(away)[-1] == "done"


@pytest.mark.parametrize("failing", [0.0, 0.2])
def test_a_watcher_that_was_killed_at_any_step_finishes_when_it_runs_again(
    log, failing, monkeypatch
):
    expected = [f"{'activate 2' if failing == 0 else 'end'}"]
    for step in range(3):
        log.path.unlink(missing_ok=True)
        service = Played(failing=failing)
        append, left = log.append, [step]

        def dying(event, fields, append=append, left=left):
            if not left[0]:
                raise KilledError
            left[0] -= 1
            append(event, fields)

        monkeypatch.setattr(log, "append", dying)
        with pytest.raises(KilledError):
            watch(service, log)
        monkeypatch.setattr(log, "append", append)
        assert events(log) == ["canary", "decided"][:step]
        decision = watch(service, log)
        assert decision.promote == (failing == 0)
        assert service.default == (2 if decision.promote else 1) and service.share == 0
        assert service.calls[-1:] == expected or step == 2
        assert events(log)[-1] == "done"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"default": 2}, "does not answer with version 1 of this registry by default"),
        ({"share": 0.5}, "tries a canary already"),
    ],
)
def test_a_service_that_does_something_else_is_left_alone(log, change, told):
    service = Played(**change)
    with pytest.raises(RequestError, match=told):
        watch(service, log)
    assert service.calls == [] and events(log) == []


def test_counters_are_read_from_the_metrics_of_a_service():
    telemetry = Telemetry()
    for seconds in (0.002, 0.03, 0.03, 40.0):
        telemetry.observe_answer(7, seconds)
    telemetry.count_failure(7)
    telemetry.observe_predict("sparse", 7, 1.0)
    telemetry.feedback.count(
        Entry(version=7), {("accepted", "0"): 1, ("rejected", "1"): 3}, is_new=True
    )
    seven, eight = read_arms(telemetry.exposition().decode(), 7, 8)
    assert (seven.answered, seven.failed, seven.requests) == (4, 1, 5)
    assert (seven.judged, seven.accepted) == (1, 0.25)
    assert [seven.slow(bound) for bound in (0.0025, 0.05, 30.0)] == [3, 1, 1]
    assert eight == Arm()
    assert Arm.from_json(seven.to_json()) == seven
