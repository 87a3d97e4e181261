"""`longtail feedback report`: counts of all entries, and what people said in a period."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from longtail.extensions import Command, Extension
from longtail.service.commands.feedback import PlaceOption
from longtail.service.commands.registry import (
    DEFAULT_REGISTRY,
    JsonOption,
    RegistryOption,
    print_json,
)


def report(
    feedback: PlaceOption,
    since: Annotated[
        str, typer.Option(help="Where it begins: 24h, 7d or 4w before the end, or a date.")
    ] = "7d",
    until: Annotated[
        str | None, typer.Option(help="Where it ends: a date or time.", show_default="now")
    ] = None,
    registry: RegistryOption = DEFAULT_REGISTRY,
    as_json: JsonOption = False,
) -> None:
    """Count all entries, and what people said in a period."""
    from longtail.ext.feedback_report.report import LabelBands, period_of, report_feedback
    from longtail.service.feedback.store import FeedbackStore

    start, end = period_of(since, until)
    with FeedbackStore(feedback, must_exist=True) as store:
        counts = store.counts()
        found = report_feedback(store, LabelBands(registry), start, end)
    if as_json:
        print_json({"all": asdict(counts)} | found.to_json())
        return
    print(
        f"{counts.entries} entries ({counts.with_text} with their text), {counts.deleted} "
        f"deleted.\nLabels: {counts.accepted} accepted, {counts.rejected} rejected, "
        f"{counts.added} added, {counts.proposed} proposed.\n\n{found.to_markdown()}"
    )
    for sentence in found.kept_in_words():
        print(f"\n{sentence}")


EXTENSION = Extension(
    "feedback_report", commands=lambda: [Command("report", report, group="feedback")]
)
