"""A promotion: a candidate is judged by documents that neither version was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from longtail.ext.promotion.feedback import METRIC, new_feedback, shares_in_order, time_of
from longtail.ext.promotion.paired import (
    NUM_TIMED,
    Answers,
    Numbering,
    PairedTest,
    PromotionRules,
    Version,
    answer,
    milliseconds_a_text,
    objections,
    paired_test,
    quality_tests,
)
from longtail.ext.promotion.verdict import Check, Verdict
from longtail.models.bundle.registry import Registry
from longtail.models.errors import ConfigError, DataError, LongtailError, count_of
from longtail.models.predict.trial import check_answers
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
            f"documents; expected at least {rules.min_documents}; name another split or corpus"
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
        _check_of_labels(old, new),
    ]
    found = [check.objection for check in checks if check.objection is not None]
    return Verdict((*objections(tests, rules), *found), tuple(tests), tuple(checks), tuple(notes))


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
        f"feedback: {count_of(len(feedback.documents), 'entry', 'entries')} used, "
        f"{feedback.num_before} left out as older than the candidate, and {feedback.num_unusable} "
        "without a text or without both right and wrong labels that both versions know"
    )
    if len(feedback.documents) < rules.min_documents:
        notes.append(f"feedback: not tested; expected at least {rules.min_documents} entries")
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


def _check_of_labels(old: Version, new: Version) -> Check:
    known = {label.id for label in new.bundle.catalogue}
    lost = [label.id for label in old.bundle.catalogue if label.id not in known]
    objection = None
    if lost:
        objection = f"{len(lost)} labels of the current version are gone, the first {lost[0]!r}"
    sizes = (len(old.bundle.catalogue), len(new.bundle.catalogue))
    return Check("labels", *sizes, "none lost", objection)


def promote(
    registry: Registry, candidate: int, held_out: HeldOut, rules: PromotionRules
) -> Verdict:
    """Judge a candidate; if nothing speaks against it, the registry's `current` names it.

    Args:
        registry: Has both versions.
        candidate: Number of the version on trial.
        held_out: What they are judged by.
        rules: What the candidate must show.
    """
    current = registry.resolve()
    if candidate == current:
        raise ConfigError(
            f"--candidate {candidate}: is the current version already; name another version"
        )
    verdict = judge(registry, candidate, current, held_out, rules)
    if verdict.has_passed:
        registry.activate(candidate, action="promote", check=check_answers)
    return verdict
