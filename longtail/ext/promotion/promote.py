"""A promotion from the first look to the end: judged, tried on a service if there is one, done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from longtail.ext.promotion.decision import Decision, Pair
from longtail.ext.promotion.judge import HeldOut, judge
from longtail.ext.promotion.log import PromotionLog
from longtail.ext.promotion.rules import PromotionRules
from longtail.ext.promotion.verdict import Verdict
from longtail.models.bundle.bundle import read_manifest
from longtail.models.bundle.registry import Registry
from longtail.models.errors import BundleError, ConfigError

_NUM_PROBES = 16
_PROBE_CHARACTERS = 2000

Rollout = Callable[[Pair, Sequence[str]], Decision]
"""Tries a pair on a service with some texts, and carries out the decision."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """How a promotion ended.

    Attributes:
        pair: Both versions.
        decision: The decision, which has been carried out.
        verdict: Verdict by the held-out documents; None if an earlier run judged them.
    """

    pair: Pair
    decision: Decision
    verdict: Verdict | None = None


def promote(
    registry: Registry,
    candidate: int,
    held_out: HeldOut,
    rules: PromotionRules,
    log: PromotionLog,
    rollout: Rollout | None = None,
) -> Promotion:
    """Judge a candidate, and replace the registry's current version by it if it passes.

    Args:
        registry: Has both versions.
        candidate: Number of the version on trial.
        held_out: The documents that judge them.
        rules: The conditions of a promotion.
        log: The log of every step; a canary that was begun in it continues.
        rollout: Tries the candidate on a service; None: the registry's `current` is moved at once.

    Raises:
        BundleNotFoundError: There is no such version, or no current one.
        BundleError: The current version can't be read.
        ConfigError: The candidate is the current version.
        DataError: The held-out documents can't be used.
        LongtailError: The service can't be asked.
    """
    pair = _pair_of(registry, candidate)
    begun = log.unfinished(pair.candidate_digest)
    if pair.candidate == pair.current:
        return _already_done(pair, log)
    probes = _probes(held_out)
    if rollout is not None and begun and begun[0]["current_digest"] == pair.current_digest:
        return Promotion(pair, rollout(pair, probes))
    verdict = judge(registry, candidate, pair.current, held_out, rules)
    log.append("judged", pair.to_json() | {"rules": rules.to_json()} | verdict.to_json())
    if not verdict.has_passed:
        return Promotion(pair, Decision(False, verdict.reasons), verdict)
    if rollout is not None:
        return Promotion(pair, rollout(pair, probes), verdict)
    decision = Decision(True, ("nothing speaks against it; no service was watched",))
    log.append("decided", pair.to_json() | decision.to_json())
    registry.activate(candidate, action="promote")
    log.append("done", pair.to_json() | {"verdict": "promote"})
    return Promotion(pair, decision, verdict)


def _already_done(pair: Pair, log: PromotionLog) -> Promotion:
    """End a promotion whose run was killed after the candidate became current."""
    begun = log.unfinished(pair.candidate_digest)
    if not begun or begun[-1].get("verdict") != "promote":
        raise ConfigError(
            f"--candidate {pair.candidate}: is the current version already; name another version"
        )
    log.append("done", pair.to_json() | {"verdict": "promote"})
    return Promotion(pair, Decision.from_json(begun[-1]))


def _pair_of(registry: Registry, candidate: int) -> Pair:
    current, candidate = registry.resolve(), registry.resolve(candidate)
    try:
        candidate_digest = read_manifest(registry.folder_of(candidate)).digest
    except BundleError:
        candidate_digest = ""  # why not is found when it is judged
    current_digest = read_manifest(registry.folder_of(current)).digest
    return Pair(candidate, current, candidate_digest, current_digest)


def _probes(held_out: HeldOut) -> list[str]:
    texts = held_out.dataset.split(held_out.split_name).texts()
    return [text[:_PROBE_CHARACTERS] for text in islice(texts, _NUM_PROBES)]
