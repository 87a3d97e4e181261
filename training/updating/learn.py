"""Learning from feedback: a new version from one that there is, in seconds."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.learned_from import Followed, LearnedFrom, Moved
from longtail.models.bundle.manifest import Manifest
from longtail.models.bundle.registry import CURRENT, Registry
from longtail.models.bundle.trained_on import DEV, TRAIN, read_trained_on
from longtail.models.edit.rewrite import rewrite
from longtail.models.errors import ConfigError, DataError
from longtail.models.files.failures import doing
from longtail.models.files.outputs import check_writable_folder, held
from longtail.models.parts.model_parts import ModelParts
from longtail.models.parts.storage import read_parts, tensors_of, texts_of
from longtail.models.scorers.tfidf import TfidfModel
from longtail.training.configuration.sections import SparseConfig
from longtail.training.data.dataset import Dataset
from longtail.training.data.overlap import with_splits_apart
from longtail.training.pipeline.default_scorer import DefaultScorer
from longtail.training.pipeline.dev_split import OnDev, finish_on_dev
from longtail.training.runtime.run_log import stage_cost
from longtail.training.updating.dev_corpus import corpus_part, write_dev_corpus
from longtail.training.updating.documents import (
    ChangedDocuments,
    TrainingDocuments,
    change_documents,
)
from longtail.training.updating.feedback import Feedback
from longtail.training.updating.heeding import Heeding
from longtail.training.updating.judged import JudgedTexts, count_followed
from longtail.training.updating.labels import SaidOfLabels, read_labels
from longtail.training.updating.movement import MOST_TEXTS, measure_movement
from longtail.training.updating.names import update_names
from longtail.training.updating.refit import (
    num_moved_rows,
    refit_sparse,
    update_catalogue,
    update_neighbours,
)
from longtail.training.updating.texts import GatheredTexts, gather_texts

logger = logging.getLogger(__name__)

_MAX_IDS = 5
_DEV = "dev"
"""Folder of the dev documents, in that of the run."""


@dataclass(frozen=True, slots=True)
class LearningRun:
    """What is to be learned, and from what.

    Attributes:
        feedback: What people said.
        corpus: The corpus that the model was trained on; None: it is learned without.
        registry: Of the version, and of the new one.
        version: What it is learned from: a number, or "current".
        work: Folder for the work; a run started again on it resumes.
        is_activated: Whether the registry's `current` names the version that it publishes.
    """

    feedback: Feedback
    corpus: Dataset | None
    registry: Registry
    version: int | str
    work: Path
    is_activated: bool = True


@dataclass(frozen=True, slots=True)
class Learned:
    """What became of a run.

    Attributes:
        version: That knows the feedback now.
        learned: How it was learned; None where the version knew everything before.
    """

    version: int
    learned: LearnedFrom | None


def learn(run: LearningRun) -> Learned:
    """Publish a version that knows what the feedback says, and return its number.

    The same run again gives the same bundle, which the registry recognises; from a version that
    knows everything already, nothing is published.

    Raises:
        BundleError: There is no such version.
        ConfigError: The corpus is another one than the version was trained on, or a folder can't
            be used.
        DataError: Nothing can be learned from the feedback; or the version remembers no documents,
            and there is no corpus.
    """
    number = run.registry.resolve(run.version)
    bundle = run.registry.open(number)
    _check(bundle, run.corpus)
    if run.corpus is not None:
        run = replace(run, corpus=with_splits_apart(run.corpus))
    run.registry.check_writable()
    check_writable_folder(run.work, "--work")
    if run.version == CURRENT and _is_learned(bundle, run):
        return Learned(number, None)
    folder = run.work / _name_of(bundle, run)
    folder.mkdir(parents=True, exist_ok=True)
    refusal = f"--work {str(run.work)!r}: the same run works in it; wait for it"
    with doing("learning", folder), held(folder / ".lock", refusal):
        try:
            return _learn(run, number, bundle, folder)
        finally:
            shutil.rmtree(folder / _DEV, ignore_errors=True)  # every run writes these texts again


def _learn(run: LearningRun, number: int, bundle: Bundle, folder: Path) -> Learned:
    settings = bundle.manifest.training
    with stage_cost(folder, "feedback"):
        before = read_parts(bundle)
        gathered = gather_texts(run.feedback, run.corpus)
        said = read_labels(gathered.texts, before.catalogue)
        _check_said(run, gathered, said)
        documents = TrainingDocuments.of(before, run.corpus).with_labels(len(said.catalogue))
        features = before.sparse.tfidf.transform(text.text for text in said.texts)
        changed = change_documents(
            documents, said.texts, features, has_dev=_can_calibrate(bundle, run.corpus)
        )
    is_same = not (changed.texts or changed.dev or said.num_new)
    if is_same and not _lacks_calibration(bundle, run.corpus):
        return Learned(number, None)
    with stage_cost(folder, "refit"):
        after = _updated(before, said, changed, bundle.manifest, run.corpus, folder)
        num_moved = num_moved_rows(before.sparse, after.sparse, changed.touched)
        assert num_moved == 0  # rows that were not touched are copied
    num_before = bundle.manifest.training_document_count
    if before.neighbours is None:  # then what was learned before is not remembered
        num_before = documents.labels.shape[0]
    num_documents = num_before + changed.num_new
    manifest = replace(
        bundle.manifest, label_count=len(after.catalogue), training_document_count=num_documents
    )
    dev_texts: list[str] = []
    if run.corpus is not None and _can_calibrate(bundle, run.corpus):
        dev = write_dev_corpus(run.corpus, changed.dev, folder / _DEV)
        default = DefaultScorer(manifest.default_scorer, manifest.default_scorer_reason)
        trained_on = JudgedTexts.of([text for text in said.texts if text not in changed.dev])
        after, on_dev = _fitted_on_dev(
            after, run.corpus, dev, num_documents, settings, folder, trained_on, default
        )
        manifest = _with_dev(manifest, after, on_dev)
        dev_texts = list(islice(dev.split("dev").texts(), MOST_TEXTS))
    with stage_cost(folder, "movement"):
        texts = dev_texts or [text.text for text in said.texts]
        moved = measure_movement(before, after, texts, changed.touched)
    with stage_cost(folder, "verdicts"):
        judged = JudgedTexts.of(said.texts)
        followed = {
            "said": judged.said,
            "before": count_followed(before, bundle.manifest, judged),
            "now": count_followed(after, manifest, judged),
        }
    learned = _learned_from(
        run, number, bundle, gathered, said, changed, moved, followed, after.sparse.tfidf
    )
    manifest = replace(manifest, learned_from=learned)
    record = _record(bundle, said, changed)
    with stage_cost(folder, "bundle"):
        version = run.registry.publish(
            lambda to: rewrite(
                to, bundle, manifest, after.catalogue, tensors_of(after) | record, texts_of(after)
            ),
            activate=run.is_activated and learned.is_better,
            action="learn",
        )
    return Learned(version, learned)


def _record(
    bundle: Bundle, said: SaidOfLabels, changed: ChangedDocuments
) -> dict[str, dict[str, np.ndarray]]:
    """Return the digests of the version's documents and of those that it learned from."""
    record = read_trained_on(bundle)
    if record is None:
        return {}
    of_dev = {each.text for each in changed.dev}
    train = [each for each in said.texts if each.text not in of_dev]
    for split, documents in ((TRAIN, train), (DEV, changed.dev)):
        texts, ids = [x.text for x in documents], [x.document_id for x in documents]
        record = record.with_documents(split, texts, ids)
    return record.tensors()


def _check(bundle: Bundle, corpus: Dataset | None) -> None:
    """Refuse a corpus that the version was not trained on.

    Raises:
        ConfigError: It is another corpus.
    """
    if corpus is not None and corpus.fingerprint != bundle.manifest.data_fingerprint:
        raise ConfigError(
            f"{str(corpus.folder)!r}: is not the corpus that version {bundle.folder.name} was "
            f"trained on (its fingerprint is {corpus.fingerprint[:12]}..., expected "
            f"{bundle.manifest.data_fingerprint[:12]}...); name that one, with the options that "
            "it was read with, or none"
        )


def _is_learned(bundle: Bundle, run: LearningRun) -> bool:
    """Whether a version was learned from the very same feedback and corpus."""
    learned = bundle.manifest.learned_from
    return (
        learned is not None
        and learned.feedback_sha256 == run.feedback.sha256
        and learned.corpus == _fingerprint(run.corpus)
    )


def _name_of(bundle: Bundle, run: LearningRun) -> str:
    """Return the name of the folder of a run: another one for all that decides what is learned."""
    parts = (bundle.manifest.digest, run.feedback.sha256, _fingerprint(run.corpus) or "none")
    return "-".join(part[:12] for part in parts)


def _fingerprint(corpus: Dataset | None) -> str:
    return "" if corpus is None else corpus.fingerprint


def _can_calibrate(bundle: Bundle, corpus: Dataset | None) -> bool:
    """Whether there are documents to calibrate on that the model was not trained on."""
    return (
        corpus is not None
        and "dev" in corpus.split_names
        and bundle.manifest.held_out_documents is None
    )


def _lacks_calibration(bundle: Bundle, corpus: Dataset | None) -> bool:
    """Whether a version was learned without calibrating it, and now can be calibrated."""
    learned = bundle.manifest.learned_from
    return learned is not None and not learned.is_calibrated and _can_calibrate(bundle, corpus)


def _check_said(run: LearningRun, gathered: GatheredTexts, said: SaidOfLabels) -> None:
    """Warn of what can't be learned from; refuse feedback of which nothing is left.

    Raises:
        DataError: Nothing is.
    """
    if said.unknown:
        logger.warning(
            "feedback: %d ids are no labels of the model and are left out: %s",
            len(said.unknown), _shown(said.unknown),
        )  # fmt: skip
    reasons = {
        "entries without a text, which no document of the corpus has": gathered.num_unresolved,
        "texts of the dev or test split, which are never trained on": gathered.num_left_out,
    }
    found = [f"{count} {what}" for what, count in reasons.items() if count]
    if found:
        logger.warning("feedback: left out: %s", "; ".join(found))
    if not said.texts:
        is_text_missing = gathered.num_unresolved and run.corpus is None
        advice = "; name the corpus, which may have the texts" if is_text_missing else ""
        raise DataError(
            f"feedback: nothing can be learned from {len(run.feedback.entries)} entries: "
            f"{'; '.join(found) or f'no label of the model is named, but {_shown(said.unknown)}'}"
            f"{advice}"
        )


def _shown(ids: Sequence[str]) -> str:
    more = ", ..." if len(ids) > _MAX_IDS else ""
    return ", ".join(repr(each[:100]) for each in ids[:_MAX_IDS]) + more


def _updated(
    before: ModelParts,
    said: SaidOfLabels,
    changed: ChangedDocuments,
    manifest: Manifest,
    corpus: Dataset | None,
    folder: Path,
) -> ModelParts:
    """Return the model with all that needs no dev split learned."""
    settings, new = manifest.training, list(said.catalogue)[len(before.catalogue) :]
    sparse = refit_sparse(before.sparse, changed, settings, folder / "sparse")
    catalogue, described = update_catalogue(said.catalogue, sparse, changed, settings, len(new))
    names, neighbours, dense = before.names, before.neighbours, before.dense
    if dense is not None:
        from longtail.training.updating.refit_dense import update_dense

        assert manifest.encoder is not None  # else there would be no dense half
        prefix = manifest.encoder.label_prefix
        dense = update_dense(dense, catalogue, described, settings, prefix)
    if names is not None:
        names = update_names(names, changed, new, sparse.tfidf, corpus)
    if neighbours is not None:
        neighbours = update_neighbours(neighbours, changed)
    return replace(
        before, catalogue=catalogue, sparse=sparse, dense=dense, names=names, neighbours=neighbours
    )


def _fitted_on_dev(
    parts: ModelParts,
    corpus: Dataset,
    dev: Dataset,
    num_documents: int,
    settings: Mapping[str, Any],
    folder: Path,
    judged: JudgedTexts,
    default: DefaultScorer,
) -> tuple[ModelParts, OnDev]:
    """Return the model with all that is fitted on dev documents, heeding judged texts.

    A blend keeps the scorers that training chose for it: the choice needs all dev documents.
    """
    whole = corpus_part(parts, corpus)
    bare = replace(whole, calibrations={}, blends={}, aims={})
    heed = None
    if judged.texts:
        bare_whole = replace(parts, calibrations={}, blends={}, aims={})
        heed = Heeding.of(bare_whole, judged, num_documents, default)
    fitted, on_dev = finish_on_dev(
        dev, bare, num_documents, settings["scorers"], folder,
        members={name: tuple(blend.weights) for name, blend in parts.blends.items()},
        heed=heed,
    )  # fmt: skip
    return replace(
        parts,
        calibrations=fitted.calibrations,
        blends=fitted.blends,
        aims=fitted.aims,
        familiar=fitted.familiar,
    ), on_dev


def _with_dev(manifest: Manifest, parts: ModelParts, on_dev: OnDev) -> Manifest:
    """Return the manifest with what was fitted on the dev split."""
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


def _learned_from(
    run: LearningRun,
    number: int,
    bundle: Bundle,
    gathered: GatheredTexts,
    said: SaidOfLabels,
    changed: ChangedDocuments,
    moved: dict[str, Moved],
    judged: dict[str, Followed],
    tfidf: TfidfModel,
) -> LearnedFrom:
    sparse = SparseConfig.model_validate(bundle.manifest.training["sparse"])
    return LearnedFrom(
        version=number,
        digest=bundle.manifest.digest,
        feedback_sha256=run.feedback.sha256,
        corpus=_fingerprint(run.corpus),
        new_documents=changed.num_new,
        corrected_documents=len(changed.corrected),
        dev_documents=len(changed.dev),
        known_documents=changed.num_known,
        left_out_texts=gathered.num_left_out,
        unresolved_entries=gathered.num_unresolved,
        unknown_labels=len(said.unknown),
        new_labels=said.num_new,
        refitted_labels=len(changed.touched),
        unknown_words=changed.unknown_share(tfidf, sparse),
        is_calibrated=_can_calibrate(bundle, run.corpus),
        moved=moved,
        judged=judged,
    )
