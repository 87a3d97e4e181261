"""Learning from feedback: a training on the corpus and the feedback, as the version was trained.

The version's encoder and the ids and the order of its labels stay.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from longtail.ext.learn.documents import change_documents
from longtail.ext.learn.verdicts import Verdicts, read_verdicts
from longtail.models.bundle.bundle import Bundle, read_manifest
from longtail.models.bundle.manifest import LearnedFrom
from longtail.models.bundle.registry import Registry
from longtail.models.edit.rewriting import warn_of_lost
from longtail.models.errors import BundleError, ConfigError, DataError
from longtail.models.files.outputs import check_writable_folder
from longtail.models.kinds.storage import read_parts
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.names import NAMES
from longtail.models.parts.model_parts import ModelParts
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import Dataset
from longtail.training.data.feedback import Feedback
from longtail.training.data.overlap import with_splits_apart

logger = logging.getLogger(__name__)

_MAX_IDS = 5


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
    """

    feedback: Feedback
    corpus: Dataset
    registry: Registry
    version: int | str
    work: Path
    is_activated: bool = True


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

    It is trained on the corpus and all of the feedback: entries that were deleted since are
    forgotten. The same run again gives the same bundle, which the registry recognises; where
    nothing is new, nothing is trained.
    """
    number = run.registry.resolve(run.version)
    bundle = run.registry.open(number)
    _check(bundle, run.corpus)
    if (known := version_that_knows(run, number)) is not None:
        return Learned(known, None)
    from longtail.training.pipeline.train import Before, Run, train  # all that trains takes seconds

    run.registry.check_writable()
    check_writable_folder(run.work, "--work")
    parts, corpus = read_parts(bundle), with_splits_apart(run.corpus)
    verdicts = read_verdicts(run.feedback.entries, _with_all_names(parts), corpus)
    _check_verdicts(run, verdicts)
    changed = change_documents(corpus, verdicts)
    manifest = bundle.manifest
    is_same = not (changed.num_new or changed.num_corrected or verdicts.num_new)
    if is_same and manifest.learned_from is None:
        return Learned(number, None)
    learned = LearnedFrom(
        version=number,
        digest=manifest.digest,
        feedback_sha256=run.feedback.sha256,
        corpus=corpus.fingerprint,
        new_documents=changed.num_new,
        corrected_documents=changed.num_corrected,
        known_documents=changed.num_known,
        left_out_texts=verdicts.num_left_out,
        unresolved_entries=verdicts.num_unresolved,
        unknown_labels=len(verdicts.unknown),
        new_labels=verdicts.num_new,
    )
    settings = {name: x for name, x in manifest.training.items() if name != "excluded_words"}
    ids = (manifest.digest, run.feedback.sha256, corpus.fingerprint)
    version = train(
        Run(
            TrainingConfig.model_validate(settings),
            changed.corpus,
            run.work / "-".join(each[:12] for each in ids),
            is_activated=run.is_activated,
            before=Before(bundle, parts, learned),
        ),
        run.registry,
    )
    warn_of_lost(bundle, run.registry.open(version).manifest.files)
    return Learned(version, learned)


def version_that_knows(run: LearningRun, number: int) -> int | None:
    """Return the version for which there is nothing to learn; None where there is.

    It was learned from the same feedback and corpus: it is the version to learn from, or was
    learned from that one and need not become current. Without feedback, it is the former. Only
    manifests are read.
    """
    if not run.feedback.entries:
        return number
    own = read_manifest(run.registry.folder_of(number))
    said = (run.feedback.sha256, run.corpus.fingerprint)
    for other in (number, *reversed(run.registry.versions())):
        try:
            learned = read_manifest(run.registry.folder_of(other)).learned_from
        except BundleError:
            continue  # a broken version knows nothing
        if learned is None or (learned.feedback_sha256, learned.corpus) != said:
            continue
        is_settled = not run.is_activated or other == run.registry.current()
        if other == number or (learned.digest == own.digest and is_settled):
            return other
    return None


def _with_all_names(parts: ModelParts) -> LabelCatalogue:
    """Return the labels of a model with all names that it knows, as a label file has them."""
    if (names := parts.models.get(NAMES)) is None:
        return parts.catalogue
    pairs = zip(parts.catalogue, names.catalogue, strict=True)
    return LabelCatalogue(
        replace(label, alternative_names=named.alternative_names, parents=named.parents)
        for label, named in pairs
    )


def _check(bundle: Bundle, corpus: Dataset) -> None:
    """Refuse a corpus that the version was not trained on."""
    if corpus.fingerprint != bundle.manifest.data_fingerprint:
        raise ConfigError(
            f"{str(corpus.folder)!r}: is not the corpus that version {bundle.folder.name} was "
            f"trained on (its fingerprint is {corpus.fingerprint[:12]}..., expected "
            f"{bundle.manifest.data_fingerprint[:12]}...); name that one, with the options that "
            "it was read with, such as --read vocabulary=FILE"
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
