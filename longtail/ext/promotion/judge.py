"""A promotion from the first look to the end: judged, tried on a service if there is one, done.

A candidate is judged by documents that neither version was trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

from longtail.ext.promotion.feedback import METRIC, new_feedback, shares_in_order, time_of
from longtail.ext.promotion.log import PromotionLog
from longtail.ext.promotion.paired import (
    NUM_TIMED,
    Answers,
    Numbering,
    PairedTest,
    Version,
    answer,
    milliseconds_a_text,
    objections,
    paired_test,
    quality_tests,
)
from longtail.ext.promotion.rules import PromotionRules
from longtail.ext.promotion.verdict import Check, Decision, Pair, Verdict
from longtail.models.bundle.bundle import read_manifest
from longtail.models.bundle.registry import Registry
from longtail.models.errors import BundleError, ConfigError, DataError, LongtailError
from longtail.training.assessment.untrained import find_trained_on
from longtail.training.calibration.reliability import calibration_error
from longtail.training.data.dataset import Dataset

_FAULTS = (LongtailError, ValueError, ArithmeticError, IndexError)
"""What comes of weights that are no numbers, or of parts that don't fit."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What both versions are measured on.

    Attributes:
        dataset: Holds the documents.
        split_name: Which of them.
        feedback: An export of feedback; None: there is none.
    """

    dataset: Dataset
    split_name: str
    feedback: Path | None = None


def judge(
    registry: Registry, candidate: int, current: int, held_out: HeldOut, rules: PromotionRules
) -> Verdict:
    """Measure both versions, and say whether anything speaks against the candidate.

    Both answer by their default scorers, as they are served. Frequency bands and propensities are
    those of the current version's training documents.

    Args:
        registry: Has both.
        candidate: The version that is to replace the other one.
        current: That one.
        held_out: Documents, held out of the training of both.
        rules: What the candidate must show.
    """
    held_out.dataset.split(held_out.split_name).scan()
    old = Version.load(current, registry.open(current))
    try:
        new = Version.load(candidate, registry.open(candidate))
    except _FAULTS as error:
        return Verdict((f"version {candidate} can't be loaded: {error}",))
    left_out = find_trained_on([new.bundle, old.bundle], held_out.dataset, held_out.split_name)
    split = left_out.view(held_out.dataset, held_out.split_name).split(held_out.split_name)
    matrix = split.scan().labels
    if matrix.shape[0] < rules.min_documents:
        raise DataError(
            f"{held_out.dataset.folder}: split {held_out.split_name!r} has {matrix.shape[0]} "
            f"documents; expected at least {rules.min_documents}, by the rule min_documents; name "
            "another split or corpus"
        )
    texts = list(split.texts())
    numbering = Numbering(held_out.dataset, [old.bundle.catalogue, new.bundle.catalogue])
    truth = numbering.truth(matrix)
    before = answer(old, texts, truth, numbering)
    try:
        after = answer(new, texts, truth, numbering)
    except _FAULTS as error:
        return Verdict((f"version {candidate} can't answer the held-out documents: {error}",))
    joined = {"current": before.joined, "candidate": after.joined}
    counts = numbering.training_counts(old.bundle.catalogue)
    num_training = old.bundle.manifest.training_document_count
    tests = quality_tests(joined, counts, num_training, rules)
    notes: list[str] = []
    if held_out.feedback is not None:
        published_at = time_of(registry.published_at(candidate))
        tests += _feedback_tests(old, new, held_out.feedback, published_at, rules, notes)
    if said := str(left_out):
        notes.append(said.removesuffix("."))
    checks = [
        *_checks_of_answers(before, after, rules),
        *_checks_of_costs([old, new], texts, rules),
        _check_of_labels(old, new, rules),
    ]
    found = [check.objection for check in checks if check.objection is not None]
    data = {
        "corpus": held_out.dataset.fingerprint,
        "split": held_out.split_name,
        "documents": len(texts),
        "trained_on": left_out.to_json(),
    }
    return Verdict(
        (*objections(tests, rules), *found), tuple(tests), tuple(checks), tuple(notes), data
    )


def _feedback_tests(
    old: Version,
    new: Version,
    path: Path,
    published_at: datetime | None,
    rules: PromotionRules,
    notes: list[str],
) -> list[PairedTest]:
    """Return the test of the feedback, if there is enough; the notes say which entries count."""
    ids = [frozenset(label.id for label in version.bundle.catalogue) for version in (old, new)]
    feedback = new_feedback(path, published_at, ids[0] & ids[1])
    notes.append(
        f"feedback: {len(feedback.documents)} entries used, {feedback.num_before} left out because "
        f"they came before the candidate was published, and {feedback.num_unusable} without a text "
        "or without both right and wrong labels that both versions know"
    )
    if len(feedback.documents) < rules.min_documents:
        notes.append(f"feedback: not tested; the rules ask for {rules.min_documents} entries")
        return []
    values = [shares_in_order(version, feedback.documents) for version in (old, new)]
    return [paired_test("feedback", METRIC, "judged", values[0], values[1], rules.band_margin)]


def _checks_of_answers(before: Answers, after: Answers, rules: PromotionRules) -> list[Check]:
    not_finite = Check(
        "scores that are no finite numbers",
        before.num_not_finite,
        after.num_not_finite,
        "0",
        f"{after.num_not_finite} scores are no finite numbers" if after.num_not_finite else None,
    )
    grew = after.num_empty > before.num_empty
    empty = Check(
        "documents without any label",
        before.num_empty,
        after.num_empty,
        "no more than the current version's",
        f"{after.num_empty} documents get no label, {before.num_empty} by the current version"
        if grew
        else None,
    )
    return [not_finite, empty, _check_of_calibration(before, after, rules)]


def _check_of_calibration(before: Answers, after: Answers, rules: PromotionRules) -> Check:
    old, new = _calibration_error(before), _calibration_error(after)
    objection = None
    if old is not None and new is None:
        objection = "it gives no probabilities, which the current version gives"
    elif old is not None and new is not None and new > old + rules.max_calibration_rise:
        objection = f"its calibration error is {new:.3f} instead of {old:.3f}"
    limit = f"a rise of {rules.max_calibration_rise:g} at most"
    return Check("calibration error of the best five labels", old, new, limit, objection)


def _calibration_error(answers: Answers) -> float | None:
    return None if answers.judged is None else calibration_error(*answers.judged)


def _checks_of_costs(
    versions: Sequence[Version], texts: Sequence[str], rules: PromotionRules
) -> list[Check]:
    step = max(1, len(texts) // NUM_TIMED)
    times = milliseconds_a_text(versions, texts[::step][:NUM_TIMED])
    sizes = [version.size_bytes / 1e6 for version in versions]
    return [
        _check_of_ratio("milliseconds a text", times, rules.max_slowdown),
        _check_of_ratio("megabytes", sizes, rules.max_size_ratio),
    ]


def _check_of_ratio(name: str, figures: Sequence[float], most: float) -> Check:
    ratio = figures[1] / figures[0]
    objection = f"{name}: {ratio:.2f} times the current version's" if ratio > most else None
    return Check(name, figures[0], figures[1], f"{most:g} times at most", objection)


def _check_of_labels(old: Version, new: Version, rules: PromotionRules) -> Check:
    known = {label.id for label in new.bundle.catalogue}
    lost = [label.id for label in old.bundle.catalogue if label.id not in known]
    objection = None
    if len(lost) > rules.max_lost_labels:
        objection = f"{len(lost)} labels of the current version are gone, the first {lost[0]!r}"
    limit = f"{rules.max_lost_labels} lost at most"
    sizes = (len(old.bundle.catalogue), len(new.bundle.catalogue))
    return Check("labels", *sizes, limit, objection)


_NUM_PROBES = 16
_PROBE_CHARACTERS = 2000

Rollout = Callable[[Pair, Sequence[str]], Decision]
"""Tries a pair on a service, by some texts, and carries out what that comes to."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """How a promotion ended.

    Attributes:
        pair: Both versions.
        decision: What was decided and done.
        verdict: Of the held-out documents; None where they were judged by a run before this one.
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
    """Judge a candidate, and let it take the place of the registry's current version if it may.

    Args:
        registry: Has both versions.
        candidate: Number of the version on trial.
        held_out: What they are judged by.
        rules: What the candidate must show.
        log: Where every step is written; a canary that was begun in it goes on.
        rollout: Tries the candidate on a service; None: the registry's `current` is moved at once.
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
