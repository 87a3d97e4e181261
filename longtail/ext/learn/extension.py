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
    corpus: CorpusOptions = RECOGNISED,
) -> None:
    """Learn from feedback: publish a new version, made from one that there is.

    It is trained on the corpus and the feedback as that one was, but its encoder stays; labels
    that were proposed are new labels.
    """
    configure_logging()
    started = time.monotonic()
    from longtail.commands.feedback_files import open_feedback
    from longtail.ext.learn.learn import LearningRun
    from longtail.ext.learn.learn import learn as learn_from
    from longtail.models.bundle.bundle import read_manifest
    from longtail.models.bundle.registry import Registry
    from longtail.models.files.outputs import check_not_in_registry
    from longtail.training.assessment.untrained import open_as_trained

    check_not_in_registry(work, registry, "--work")
    store, said = Registry(registry), open_feedback(feedback)
    dataset = open_as_trained(data, corpus, [store.open(version)])
    done = learn_from(LearningRun(said, dataset, store, version, work, activate))
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
    if on_dev := dev_in_words(before, after):
        print(on_dev)
    print(f"Digest {after.digest}")


def nothing_new(version: int, registry: Path, num_entries: int) -> str:
    """Return the message for feedback with nothing to learn."""
    return (
        f"Nothing is new: version {version} of {str(registry)!r} knows all of the "
        f"feedback already (number of entries: {num_entries})."
    )


def in_words(learned: LearnedFrom) -> Iterator[str]:
    """Describe in lines what a version learned.

    Yields:
        One line about the documents, one about those left out, one about the labels.
    """
    yield (
        f"Documents: {learned.new_documents} new, {learned.corrected_documents} corrected, "
        f"{learned.known_documents} were known so."
    )
    counts = {
        "texts of the dev or test split": learned.left_out_texts,
        "entries whose text is not known": learned.unresolved_entries,
        "ids that are no labels": learned.unknown_labels,
    }
    if left_out := ", ".join(f"{count} {what}" for what, count in counts.items() if count):
        yield f"Left out: {left_out}."
    yield f"Labels: {learned.new_labels} new."


def dev_in_words(before: Manifest, after: Manifest) -> str:
    """Return how well the default scorers rank dev, for a person; empty where one is not known."""
    from longtail.training.evaluation.by_frequency import ALL_LABELS

    manifests = (after, before)
    found = [x.metrics.get("dev", {}).get(x.default_scorer, {}).get(ALL_LABELS) for x in manifests]
    if not all(found):
        return ""
    figures = [
        f"{name} {100 * found[0][name]:.2f} % ({100 * found[1][name]:.2f} % before)"
        for name in ("P@1", "P@5", "PSP@5")  # of models with fewer labels, those that there are
        if name in found[0] and name in found[1]
    ]
    return f"On dev documents it has {', '.join(figures)}."


EXTENSION = Extension("learn", commands=lambda: [Command("learn", learn)])
