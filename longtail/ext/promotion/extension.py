"""`longtail promote`: replaces the current version by a candidate, or says why not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.extensions import Command, Extension
from longtail.models.corpus.columns import RECOGNISED, CorpusOptions
from longtail.training.commands.options import (
    DEFAULT_REGISTRY,
    RegistryOption,
    SplitOption,
    configure_logging,
    with_read_option,
)

if TYPE_CHECKING:  # imported inside the command, so that --help stays fast
    from longtail.models.bundle.bundle import Bundle
    from longtail.models.bundle.registry import Registry


@with_read_option
def promote(
    candidate: Annotated[
        int, typer.Option(min=1, help="Number of the version that is to become current.")
    ],
    data: Annotated[
        Path,
        typer.Option(help="Folder of a corpus, or one file: documents held out of both."),
    ],
    registry: RegistryOption = DEFAULT_REGISTRY,
    split: SplitOption = "dev",
    feedback: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="An export of feedback with texts, or the folder that keeps it.",
        ),
    ] = None,
    not_worse: Annotated[
        bool,
        typer.Option("--not-worse", help="Promote a version that is as good, but not better, too."),
    ] = False,
    corpus: CorpusOptions = RECOGNISED,
) -> None:
    """Compare a version with the current one on held-out documents, and promote it or not.

    Exit status 1 if it is not promoted.
    """
    configure_logging()
    from longtail.commands.feedback_files import feedback_file
    from longtail.ext.promotion.judge import HeldOut
    from longtail.ext.promotion.judge import promote as promote_version
    from longtail.ext.promotion.paired import PromotionRules
    from longtail.models.bundle.registry import Registry
    from longtail.models.errors import PromotionRefusedError
    from longtail.training.assessment.untrained import open_as_trained

    store = Registry(registry)
    store.resolve(candidate)
    store.check_writable()
    opened: AbstractContextManager[Path | None] = (
        nullcontext() if feedback is None else feedback_file(feedback)
    )
    with opened as said:
        bundles = _readable(store, (candidate, "current"))
        known = bundles[0].catalogue if bundles else None
        held_out = HeldOut(open_as_trained(data, corpus, bundles, known), split, said)
        rules = PromotionRules(must_be_better=not not_worse)
        verdict = promote_version(store, candidate, held_out, rules)
    if report := verdict.to_markdown():
        print(report + "\n")
    if not verdict.has_passed:
        raise PromotionRefusedError(
            f"version {candidate} is not promoted, version {store.current()} stays: "
            f"{'; '.join(verdict.reasons)}"
        )
    print(f"Version {candidate} is promoted: nothing speaks against it.")


def _readable(store: Registry, versions: Sequence[int | str]) -> list[Bundle]:
    """Return the versions that can be opened; why others can't is found when they are judged."""
    from longtail.models.errors import BundleError

    found = []
    for version in versions:
        with suppress(BundleError):
            found.append(store.open(version))
    return found


EXTENSION = Extension("promotion", commands=lambda: [Command("promote", promote)])
