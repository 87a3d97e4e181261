"""`longtail feedback report`: counts of all entries, and what people said in a period."""

from __future__ import annotations

from collections import Counter
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
    for precision, judged in sorted(found.promised.items()):
        print(f"\n{_promised(precision, judged)}")


def _promised(precision: float, judged: Counter[str]) -> str:
    """Return whether a promise of a precision is kept, in a sentence.

    The bounds may be looked at every week: they hold at all times at once.
    """
    import numpy as np

    from longtail.service.telemetry.sequential import rate_bounds

    right, total = np.array([float(judged["accepted"])]), np.array([float(judged.total())])
    (lower,), (upper,) = rate_bounds(right, total, 0.05)
    kept = "kept" if lower >= precision else "broken" if upper < precision else "not decided yet"
    return (
        f"Promise of {100 * precision:g} %: {judged.total():,} of its labels were judged, and "
        f"people accepted {100 * right[0] / total[0]:.1f} % of them (95 % confidence sequence: "
        f"{100 * lower:.1f} to {100 * upper:.1f} %): {kept}."
    )


EXTENSION = Extension(
    "feedback_report", commands=lambda: [Command("report", report, group="feedback")]
)
