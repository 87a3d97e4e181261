"""Shared by commands that make a version from another one without training."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:  # imported inside the functions, so that --help stays fast
    from longtail.models.bundle.bundle import Bundle
    from longtail.models.bundle.manifest import Manifest
    from longtail.models.bundle.registry import Registry

ActivateOption = Annotated[
    bool, typer.Option("--activate", help="Let 'current' name the new version.")
]
MeasureOption = Annotated[
    Path | None, typer.Option(help="Measure on a split of this corpus: a folder or file.")
]
MeasureSplitOption = Annotated[str, typer.Option("--split", help="That of --data: dev or test.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Publish however much it changes.")]


def check_can_measure(data: Path | None) -> None:
    """Check that a corpus can be measured on, which needs training to be installed."""
    from longtail.models.errors import ConfigError

    if data is not None and find_spec("longtail.training") is None:
        raise ConfigError("--data: nothing is installed that reads a corpus; leave it out")


def publish_changed(
    store: Registry,
    bundle: Bundle,
    write: Callable[[Path], Manifest],
    data: Path | None,
    split: str,
    *,
    activate: bool,
    force: bool,
    action: str,
) -> int:
    """Publish a version made from another one, and return its number.

    Args:
        store: The registry.
        bundle: The version it is made from.
        write: Writes the new version.
        data: A corpus on which it is measured; None: it is not measured.
        split: The split of the corpus.
        activate: Whether `current` shall name it.
        force: Whether to publish it however many first ranks the new labels take.
        action: The word for it in the log of changes.
    """
    from longtail.models.edit.rewriting import measured
    from longtail.models.predict.trial import check_answers

    on = None
    if data is not None:
        from longtail.training.assessment.untrained import held_out

        on = held_out(data, bundle, split)
    write = measured(write, bundle, on, partial(print, file=sys.stderr), force=force)
    return store.publish(write, activate=activate, action=action, check=check_answers)
