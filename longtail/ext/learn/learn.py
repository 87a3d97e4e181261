"""Learning from feedback: all that needs no encoder is fitted on the corpus and the feedback."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from longtail.ext.learn.documents import ChangedDocuments, change_documents, write_dev_corpus
from longtail.ext.learn.heeding import Heeding
from longtail.ext.learn.judged import JudgedTexts, count_followed
from longtail.ext.learn.known import version_that_knows
from longtail.ext.learn.refit import refit
from longtail.ext.learn.verdicts import Verdicts, read_verdicts
from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.manifest import LearnedFrom, Manifest
from longtail.models.bundle.registry import Registry
from longtail.models.bundle.trained_on import DEV, TRAIN, read_trained_on
from longtail.models.edit.rewriting import rewrite
from longtail.models.errors import ConfigError, DataError
from longtail.models.files.failures import doing
from longtail.models.files.outputs import check_writable_folder, held
from longtail.models.fitted.familiar_range import FAMILIAR_RANGE
from longtail.models.fitted.registry import without_lost
from longtail.models.kinds.storage import read_parts, tensors_of, texts_of
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.trial import check_answers
from longtail.training.configuration.sections import SparseConfig
from longtail.training.data.dataset import Dataset
from longtail.training.data.feedback import Feedback
from longtail.training.data.overlap import with_splits_apart
from longtail.training.pipeline.dev_split import DefaultScorer, OnDev, finish_on_dev
from longtail.training.runtime.run_log import stage_cost

logger = logging.getLogger(__name__)

_MAX_IDS = 5
_MOST_CHANGED = 0.01
"""Share of the training documents that are new or corrected, up to which all that was fitted on
dev documents stays, and sparse classifiers are changed by these documents alone."""
_LEAST_FOLLOWED = 0.95
"""Share of the verdicts that answers follow, below which blends are fitted to heed them.

To follow more costs other texts: of 1,000 documents with 100 new labels on EURLEX57K, the 98.5 % of
the verdicts that were followed became 99.7 %, for 0.3 points of P@5 and 4 of R@10 of new labels.
"""
_DEV = "dev"
"""Folder of the dev documents, in that of the run."""


@dataclass(frozen=True, slots=True)
class LearningRun:
    """What is to be learned, and from what.

    Attributes:
        feedback: What people said.
        corpus: The corpus that the model was trained on.
        registry: Registry of the version, and of the new one.
        version: The version to learn from: a number, or "current".
        work: Folder for the work; a run started again on it resumes.
        is_activated: Whether the registry's `current` names the version that it publishes.
        is_full: Whether features, names and classifiers of touched labels are fitted on all
            documents again, although the version knows most of them, and what is fitted on dev
            documents, too, however few documents changed.
    """

    feedback: Feedback
    corpus: Dataset
    registry: Registry
    version: int | str
    work: Path
    is_activated: bool = True
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class Learned:
    """The result of a run.

    Attributes:
        version: The version that knows the feedback now.
        learned: How it was learned; None where the version knew everything before.
    """

    version: int
    learned: LearnedFrom | None


def learn(run: LearningRun) -> Learned:
    """Publish a version that knows what the feedback says, and return its number.

    The new version depends on the vocabulary, the labels and the dense half of the old one, on the
    corpus, and on all of the feedback: entries that were deleted since are forgotten. The same run
    again gives the same bundle, which the registry recognises; from a version that knows everything
    already, nothing is published.
    """
    number = run.registry.resolve(run.version)
    bundle = run.registry.open(number)
    _check(bundle, run.corpus)
    known = version_that_knows(
        run.registry, number, run.feedback, run.corpus.fingerprint,
        activate=run.is_activated, full=run.is_full,
    )  # fmt: skip
    if known is not None:
        return Learned(known, None)
    run = replace(run, corpus=with_splits_apart(run.corpus))
    run.registry.check_writable()
    check_writable_folder(run.work, "--work")
    parts = (bundle.manifest.digest, run.feedback.sha256, run.corpus.fingerprint)
    folder = run.work / ("-".join(part[:12] for part in parts) + "-full" * run.is_full)
    folder.mkdir(parents=True, exist_ok=True)
    refusal = f"--work {str(run.work)!r}: the same run works in it; wait for it"
    with doing("learning", folder), held(folder / ".lock", refusal):
        try:
            return _learn(run, number, bundle, folder)
        finally:
            shutil.rmtree(folder / _DEV, ignore_errors=True)  # every run writes these texts again


def _learn(run: LearningRun, number: int, bundle: Bundle, folder: Path) -> Learned:
    # Documents that were held out for want of a dev split were trained on in the end.
    has_dev = "dev" in run.corpus.split_names and bundle.manifest.held_out_documents is None
    with stage_cost(folder, "feedback"):
        before = without_lost(read_parts(bundle))  # that is of other scores than the new ones
        verdicts = read_verdicts(run.feedback.entries, before.catalogue, run.corpus)
        _check_verdicts(run, verdicts)
        changed = change_documents(run.corpus, verdicts, has_dev=has_dev)
    if not (len(changed.touched) or changed.dev or verdicts.num_new):
        return Learned(number, None)
    are_few = _are_few(changed)
    with stage_cost(folder, "refit"):
        record = None if run.is_full else read_trained_on(bundle)
        after, refitted = refit(
            before, verdicts.catalogue, changed, bundle.manifest, folder, record,
            has_few=are_few,
        )  # fmt: skip
    manifest = replace(
        bundle.manifest,
        label_count=len(after.catalogue),
        training_document_count=changed.labels.shape[0],
    )
    with stage_cost(folder, "verdicts"):
        judged = JudgedTexts.of(verdicts.texts)
        followed, followed_now = (
            count_followed(parts, bundle.manifest, judged) for parts in (before, after)
        )
    heeds = followed_now.verdicts < _LEAST_FOLLOWED * judged.said.verdicts
    is_calibrated = has_dev and (heeds or run.is_full or not (are_few and manifest.calibrations))
    if is_calibrated:
        after, manifest = _finished_on_dev(
            run, verdicts, changed, after, manifest, folder, heeds=heeds
        )
        followed_now = count_followed(after, manifest, judged)
    sparse = SparseConfig.model_validate(bundle.manifest.training["sparse"])
    learned = LearnedFrom(
        version=number,
        digest=bundle.manifest.digest,
        feedback_sha256=run.feedback.sha256,
        corpus=run.corpus.fingerprint,
        new_documents=len(changed.new),
        corrected_documents=changed.num_corrected,
        dev_documents=len(changed.dev),
        known_documents=changed.num_known,
        left_out_texts=verdicts.num_left_out,
        unresolved_entries=verdicts.num_unresolved,
        unknown_labels=len(verdicts.unknown),
        new_labels=verdicts.num_new,
        refitted_labels=len(refitted),
        unknown_words=changed.unknown_share(after.sparse.tfidf, sparse),
        is_calibrated=is_calibrated,
        judged={"said": judged.said, "before": followed, "now": followed_now},
    )
    manifest = replace(manifest, learned_from=learned)
    tensors = tensors_of(after) | _record(bundle, verdicts, changed)
    with stage_cost(folder, "bundle"):
        version = run.registry.publish(
            lambda to: rewrite(to, bundle, manifest, after.catalogue, tensors, texts_of(after)),
            activate=run.is_activated and learned.is_better,
            action="learn",
            check=check_answers,
        )
    return Learned(version, learned)


def _are_few(changed: ChangedDocuments) -> bool:
    """Whether so few documents changed that what was fitted to the others still holds."""
    num_changed = len(changed.new) + changed.num_corrected
    return bool(num_changed <= _MOST_CHANGED * changed.labels.shape[0])


def _record(
    bundle: Bundle, verdicts: Verdicts, changed: ChangedDocuments
) -> dict[str, dict[str, np.ndarray]]:
    """Return the digests of the version's documents and of documents that it learned from."""
    record = read_trained_on(bundle)
    of_dev = {each.text for each in changed.dev}
    train = [each for each in verdicts.texts if each.text not in of_dev]
    for split, documents in ((TRAIN, train), (DEV, changed.dev)):
        record = record.with_documents(split, [x.text for x in documents])
    return record.tensors()


def _check(bundle: Bundle, corpus: Dataset) -> None:
    """Refuse a corpus that the version was not trained on."""
    if corpus.fingerprint != bundle.manifest.data_fingerprint:
        raise ConfigError(
            f"{str(corpus.folder)!r}: is not the corpus that version {bundle.folder.name} was "
            f"trained on (its fingerprint is {corpus.fingerprint[:12]}..., expected "
            f"{bundle.manifest.data_fingerprint[:12]}...); name that one, with the options that "
            "it was read with"
        )


def _check_verdicts(run: LearningRun, verdicts: Verdicts) -> None:
    """Warn of what can't be learned from; refuse feedback of which nothing is left."""
    if verdicts.unknown:
        logger.warning(
            "feedback: %d ids are no labels of the model and are left out: %s",
            len(verdicts.unknown), _shown(verdicts.unknown),
        )  # fmt: skip
    reasons = {
        "entries without a text, which no document of the corpus has": verdicts.num_unresolved,
        "texts of the dev or test split, which are never trained on": verdicts.num_left_out,
    }
    found = [f"{count} {what}" for what, count in reasons.items() if count]
    if found:
        logger.warning("feedback: left out: %s", "; ".join(found))
    if not verdicts.texts:
        unknown = f"no label of the model is named, but {_shown(verdicts.unknown)}"
        raise DataError(
            f"feedback: nothing can be learned from {len(run.feedback.entries)} entries: "
            f"{'; '.join(found) or unknown}"
        )


def _shown(ids: Sequence[str]) -> str:
    more = ", ..." if len(ids) > _MAX_IDS else ""
    return ", ".join(repr(each[:100]) for each in ids[:_MAX_IDS]) + more


def _finished_on_dev(
    run: LearningRun,
    verdicts: Verdicts,
    changed: ChangedDocuments,
    parts: ModelParts,
    manifest: Manifest,
    folder: Path,
    *,
    heeds: bool,
) -> tuple[ModelParts, Manifest]:
    """Return the model with all that is fitted on dev documents, if asked heeding judged texts.

    A blend keeps the scorers that training chose for it: the choice needs all dev documents. What
    documents and shorter texts are like stays too, but where all is fitted again.
    """
    num_documents = manifest.training_document_count
    dev = write_dev_corpus(run.corpus, parts.catalogue, changed, folder / _DEV)
    bare = replace(parts, calibrations={}, blends={})
    default = DefaultScorer(manifest.default_scorer, manifest.default_scorer_reason)
    trained_on = JudgedTexts.of([each for each in verdicts.texts if each not in changed.dev])
    heeds = heeds and bool(trained_on.texts)
    heed = Heeding.of(bare, trained_on, num_documents, default) if heeds else None
    fitted, on_dev = finish_on_dev(
        dev, bare, num_documents, manifest.training["scorers"], folder,
        members={name: tuple(blend.weights) for name, blend in parts.blends.items()},
        heed=heed, num_looked_for=len(run.corpus.labels),
        kept_parts=() if run.is_full else (FAMILIAR_RANGE.name,),
    )  # fmt: skip
    return fitted, _with_dev(manifest, fitted, on_dev)


def _with_dev(manifest: Manifest, parts: ModelParts, on_dev: OnDev) -> Manifest:
    """Return the manifest with the parts fitted on the dev split."""
    default = on_dev.default
    if default is None or default.name not in parts.scorers:
        default = DefaultScorer(parts.scorers[0], "")
    return replace(
        manifest,
        scorers=parts.scorers,
        default_scorer=default.name,
        default_scorer_reason=default.reason,
        metrics={"dev": on_dev.metrics},
        calibrations=dict(parts.calibrations),
        blends=dict(parts.blends),
        thresholds=on_dev.thresholds,
    )
