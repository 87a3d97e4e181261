"""`longtail learn`: a new version from one that there is and what people said of its labels."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.extensions import Command, Extension
from longtail.models.corpus.columns import RECOGNISED, CorpusOptions
from longtail.training.commands.options import (
    DEFAULT_REGISTRY,
    RegistryOption,
    VersionOption,
    configure_logging,
    with_read_option,
)

if TYPE_CHECKING:  # imported inside the command, so that --help stays fast
    from longtail.models.bundle.manifest import LearnedFrom, Manifest

MANY_UNKNOWN_WORDS = 0.1
"""A rule of thumb: from this share on, the command advises a full training."""


@with_read_option
def learn(
    data: Annotated[Path, typer.Argument(help="The corpus that the model was trained on.")],
    feedback: Annotated[
        str,
        typer.Option(
            "--feedback",
            envvar="LONGTAIL_FEEDBACK",
            help="Folder that keeps the feedback, or an export of it.",
        ),
    ] = "feedback",
    registry: RegistryOption = DEFAULT_REGISTRY,
    version: VersionOption = "current",
    work: Annotated[
        Path, typer.Option(help="Folder of the work; started again on it, a run resumes.")
    ] = Path("runs/learn"),
    activate: Annotated[
        bool,
        typer.Option(
            help="Let 'current' name the new version; without, 'longtail promote' may do it."
        ),
    ] = True,
    full: Annotated[
        bool,
        typer.Option("--full", help="Fit on all documents again, not on what differs alone."),
    ] = False,
    corpus: CorpusOptions = RECOGNISED,
) -> None:
    """Learn from feedback: publish a new version, made from one that there is.

    All that needs no encoder is fitted on the corpus and the feedback, on the vocabulary that
    there is; labels that were proposed are new labels.
    """
    configure_logging()
    started = time.monotonic()
    from longtail.commands.feedback_files import open_feedback
    from longtail.ext.learn.known import version_that_knows
    from longtail.models.bundle.bundle import read_manifest
    from longtail.models.bundle.registry import Registry
    from longtail.models.files.outputs import check_not_in_registry
    from longtail.training.assessment.untrained import open_as_trained

    check_not_in_registry(work, registry, "--work")
    store = Registry(registry)
    dataset = open_as_trained(data, corpus, [store.open(version)])
    said = open_feedback(feedback)
    known = version_that_knows(
        store, version, said, dataset.fingerprint, activate=activate, full=full
    )
    if known is not None:
        print(nothing_new(known, registry, len(said.entries)))
        return
    from longtail.ext.learn.learn import LearningRun  # with all that trains, which takes seconds
    from longtail.ext.learn.learn import learn as learn_from

    done = learn_from(LearningRun(said, dataset, store, version, work, activate, full))
    if done.learned is None:
        print(nothing_new(done.version, registry, len(said.entries)))
        return
    print(
        f"Version {done.version} of {str(registry)!r} is learned from version "
        f"{done.learned.version}, in {time.monotonic() - started:.0f} s."
    )
    before, after = (
        read_manifest(store.folder_of(x)) for x in (done.learned.version, done.version)
    )
    print("\n".join(in_words(done.learned)))
    print(f"Default scorer: {after.default_scorer}.")
    if done.learned.is_calibrated and (on_dev := dev_in_words(before, after)):
        print(on_dev)
    print(f"Digest {after.digest}")
    print(verdicts_in_words(done.learned))
    if activate and not done.learned.is_better:
        print(not_current(done.version))


def nothing_new(version: int, registry: Path, num_entries: int) -> str:
    """Return the message for feedback with nothing to learn."""
    return (
        f"Nothing is new: version {version} of {str(registry)!r} knows all {num_entries} entries "
        "of the feedback already."
    )


def in_words(learned: LearnedFrom) -> Iterator[str]:
    """Describe in lines what a version learned.

    Yields:
        One line about the documents, one about the labels, and so on.
    """
    yield (
        f"Documents: {learned.new_documents} new, {learned.corrected_documents} corrected, "
        f"{learned.dev_documents} joined the dev split, {learned.known_documents} were known so."
    )
    if left_out := _left_out(learned):
        yield f"Left out: {left_out}."
    yield (
        f"Labels: {learned.refitted_labels} learned again, {learned.new_labels} of them new; the "
        "sparse classifiers of all others are the same to the bit."
    )
    if not learned.is_calibrated:
        yield (
            "Probabilities and blends stay those of before: few documents changed, or the corpus "
            "has no dev documents that the model was not trained on."
        )
    share = (
        f"{learned.unknown_words:.1%} of the words that several new documents have are not in the "
        "vocabulary"
    )
    advice = "; train again to learn them" if learned.unknown_words >= MANY_UNKNOWN_WORDS else ""
    if learned.new_documents:
        yield f"Words: {share}{advice}."


def dev_in_words(before: Manifest, after: Manifest) -> str:
    """Return how well the default scorers rank dev, for a person; empty where one is not known."""
    from longtail.training.evaluation.by_frequency import ALL_LABELS

    manifests = (after, before)
    found = [x.metrics.get("dev", {}).get(x.default_scorer, {}).get(ALL_LABELS) for x in manifests]
    if not all(found):
        return ""
    figures = [
        f"{name} {100 * found[0][name]:.2f} % ({100 * found[1][name]:.2f} % before)"
        for name in ("P@1", "P@5", "PSP@5")
    ]
    return f"On dev documents it has {', '.join(figures)}."


def verdicts_in_words(learned: LearnedFrom) -> str:
    """Return how many judged texts are answered as people said, for a person."""
    said, before, now = (learned.judged[name] for name in ("said", "before", "now"))
    verdicts = [
        f"{after} of {total} labels that were {what} ({first} before)"
        for what, total, after, first in (
            ("accepted", said.accepted, now.accepted, before.accepted),
            ("rejected", said.rejected, now.rejected, before.rejected),
        )
        if total
    ]
    return (
        f"Of {said.texts} judged texts, {now.texts} are now answered as people said "
        f"({before.texts} before); followed are {' and '.join(verdicts)}."
    )


def not_current(version: int) -> str:
    """Return the message for a version that follows verdicts no better than before."""
    return (
        f"That is no better, so version {version} is published but not current; 'longtail registry "
        f"activate {version}' makes it current."
    )


def _left_out(learned: LearnedFrom) -> str:
    counts = {
        "texts of the dev or test split": learned.left_out_texts,
        "entries whose text is not known": learned.unresolved_entries,
        "ids that are no labels": learned.unknown_labels,
    }
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


EXTENSION = Extension("learn", commands=lambda: [Command("learn", learn)])
