"""A report of one model: a self-contained HTML page with all that there is to look at.

Tables and figures of an evaluation, and from the run's folder its losses, time and memory. It
quotes no document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.manifest import Manifest
from longtail.models.errors import ConfigError
from longtail.models.extras import is_installed
from longtail.models.files.durable import read_json
from longtail.training.assessment.assess import Assessment
from longtail.training.assessment.per_label import label_cells, measure_labels
from longtail.training.calibration.reliability import draw_reliability
from longtail.training.configuration.sections import AUTO
from longtail.training.evaluation.by_frequency import hierarchical_table
from longtail.training.evaluation.plots import can_draw, draw_by_frequency, new_figure, png_of
from longtail.training.evaluation.record import Table
from longtail.training.reports import html
from longtail.training.runtime.kept import RUN_NAME
from longtail.training.runtime.run_log import (
    ProgressPoint,
    StageCost,
    progress_path,
    read_progress,
    read_stage_costs,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_LABELS = 1000
"""Most rows of the table of single labels."""
_CHECKPOINTS = {"classifier": "classifier", "retrieval": "retrieval", "linear": "linear/steps"}
"""Where the stages that have losses keep their checkpoints, in a run's folder."""
_TIMES = ("wall_s", "cpu_s")
_SMOOTHED_SHARE = 0.05
"""Share of a stage's points that are averaged into one point of the smooth curve."""


@dataclass(frozen=True, slots=True)
class RunLog:
    """What a run wrote down of itself.

    Attributes:
        progress: The losses of each stage that has some.
        costs: Time and memory of each stage.
    """

    progress: Mapping[str, Sequence[ProgressPoint]]
    costs: Sequence[StageCost]

    def to_json(self) -> dict[str, object]:
        """Return the costs of each stage, and its last loss."""
        return {
            "costs": [asdict(cost) for cost in self.costs],
            "last_losses": {name: asdict(points[-1]) for name, points in self.progress.items()},
        }


def read_run_log(folder: Path, manifest: Manifest) -> RunLog:
    """Return what is in the folder of the run that made a bundle, or in one in it."""
    notes = [folder / RUN_NAME, *sorted(folder.glob(f"run-*/{RUN_NAME}"))]
    notes = [note for note in notes if note.is_file()]
    if not notes:
        raise ConfigError(
            f"report: no run in {str(folder)!r}; give --work of 'longtail train', or leave it out"
        )
    made = next((note.parent for note in notes if _has_made(read_json(note), manifest)), None)
    if made is None:
        raise ConfigError(
            f"report: {str(folder)!r} holds another run than the one that made this model (its "
            "configuration or its data differ); give the right one with --work, or leave it out"
        )
    progress = {
        name: read_progress(progress_path(made / checkpoints))
        for name, checkpoints in _CHECKPOINTS.items()
    }
    return RunLog(
        {name: points for name, points in progress.items() if points},
        read_stage_costs(made),
    )


def _has_made(found: Mapping[str, Any], manifest: Manifest) -> bool:
    return found["data_fingerprint"] == manifest.data_fingerprint and all(
        _is_made_with(value, manifest.training.get(key))
        for key, value in found["config"].items()
        if key != "encoder"  # by its folder there, by its name here
    )


def _is_made_with(configured: Any, used: Any) -> bool:
    """Whether a setting is as configured; one that was left open is as training chose it."""
    if isinstance(configured, Mapping) and isinstance(used, Mapping):
        return configured.keys() == used.keys() and all(
            value in (AUTO, used[key]) for key, value in configured.items()
        )
    return bool(configured == used)


def report_page(
    bundle: Bundle,
    version: int,
    split_name: str,
    found: Assessment,
    log: RunLog | None = None,
) -> str:
    """Return the page; without matplotlib it has no pictures, which a warning says.

    Args:
        bundle: The model.
        version: Its number.
        split_name: The split that was ranked.
        found: Rankings and metrics, with the reliability of the probabilities.
        log: What the run wrote down; None: the page has no curves and no costs.
    """
    can_draw()
    manifest = bundle.manifest
    short = found.evaluation.short_cells(manifest.scorers, manifest.default_scorer)
    sections = [
        html.section("In short", html.table(short, mark_best=True)),
        _model(bundle, version, split_name),
        _metrics(found),
        _probabilities(found),
        *_labels(bundle, found),
        *([] if log is None else [_training(log)]),
        _configuration(bundle.manifest),
    ]
    return html.page(f"Longtail, model version {version}", sections)


def _model(bundle: Bundle, version: int, split_name: str) -> str:
    manifest, encoder = bundle.manifest, bundle.manifest.encoder
    return html.facts({
        "Version": str(version),
        "Digest": manifest.digest,
        "Labels": f"{manifest.label_count:,}",
        "Training documents": f"{manifest.training_document_count:,}",
        "Data (sha256)": manifest.data_fingerprint,
        "Encoder": "none" if encoder is None else f"{encoder.name}, {encoder.dim} dimensions",
        "Scorers": ", ".join(manifest.scorers),
        "Default scorer": manifest.default_scorer,
        "Why this scorer": manifest.default_scorer_reason or "no other one could be chosen",
        "Chosen and calibrated on": manifest.chosen_on,
        "Measured on": f"the {split_name} split",
        "Written by": f"Longtail {manifest.longtail_version}",
    })  # fmt: skip


def _metrics(found: Assessment) -> str:
    evaluation, most = found.evaluation, found.evaluation.ks[-1]
    measured = (found.rankings, found.truth, found.training_counts)
    draw = partial(draw_by_frequency, *measured, min(5, most), most)
    folded = (html.folded(x.heading, html.table(x.cells)) for x in evaluation.bin_tables())
    deep = [hierarchical_table(found.hierarchical)] if found.hierarchical else []
    return html.section(
        "Metrics",
        html.note(found.measured_on),
        *_shown([*evaluation.tables(), *found.group_tables]),
        _picture(draw, "F1, recall and nDCG of each scorer by frequency"),
        *folded,
        *_shown(deep),
    )


def _shown(tables: Iterable[Table]) -> Iterator[str]:
    for each in tables:
        yield f"<h3>{escape(each.heading)}</h3>"
        yield html.note(each.note) if each.note else ""
        yield html.table(each.cells, mark_best=each.has_best)


def _picture(draw: Callable[[], Figure], alternative: str) -> str:
    return html.picture(png_of(draw()), alternative) if is_installed("plots") else ""


def _probabilities(found: Assessment) -> str:
    assert found.reliability is not None
    draw = partial(draw_reliability, found.reliability)
    parts = [
        *_shown(found.reliability.tables()),
        _picture(draw, "Share of right labels over their probability"),
    ]
    for each in found.fitted.values():
        parts += _shown(each.tables)
        parts += [] if each.draw is None else [_picture(each.draw, each.alternative)]
    return html.section("Probabilities", *parts)


def _labels(bundle: Bundle, found: Assessment) -> list[str]:
    threshold = bundle.manifest.thresholds.get(bundle.manifest.default_scorer)
    if found.answers is None or threshold is None:
        return []
    figures = measure_labels(found.answers, threshold)
    cells = label_cells(figures, bundle.catalogue, _MAX_LABELS)
    about = (
        f"By {bundle.manifest.default_scorer}, from the probability {threshold:.3f} on, with "
        f"Wilson's 95 % intervals: the {len(cells[1]):,} labels that most documents carry or get; "
        "longtail evaluate --per-label writes all. A heading sorts by its column."
    )
    return [html.section("Label by label", html.note(about), html.table(cells, is_sortable=True))]


def _training(log: RunLog) -> str:
    parts = []
    if log.progress:
        draw = partial(draw_curves, log.progress)
        parts.append(_picture(draw, "Loss over the steps of each stage"))
        parts.append(html.note("Loss of each step, and its mean over a twentieth of the points."))
    if log.costs:
        header = ["stage", "seconds", "CPU seconds", "peak memory, GiB", "sessions"]
        rows = [
            [
                cost.stage if cost.is_done else f"{cost.stage} (not done)",
                f"{cost.wall_s:,.1f}",
                f"{cost.cpu_s:,.1f}",
                f"{cost.peak_rss_bytes / 2**30:.2f}",
                str(cost.num_sessions),
            ]
            for cost in log.costs
        ]
        total = [f"{sum(getattr(cost, name) for cost in log.costs):,.1f}" for name in _TIMES]
        peak = max(cost.peak_rss_bytes for cost in log.costs) / 2**30
        parts.append(html.table((header, [*rows, ["all", *total, f"{peak:.2f}", ""]])))
        parts.append(
            html.note(
                "Seconds by the clock and of all processor cores; the largest resident memory of "
                "the process while the stage ran. What a killed session took is not counted."
            )
        )
    return html.section("Training", *(parts or [html.note("The run's folder holds no records.")]))


def draw_curves(stages: Mapping[str, Sequence[ProgressPoint]]) -> Figure:
    """Draw the loss of each stage over its steps, as it was and averaged.

    Args:
        stages: By name, at least one; each with at least one point.
    """
    figure = new_figure(9.0, 3.2)
    grid = figure.subplots(1, len(stages), squeeze=False)
    for axes, (name, points) in zip(grid.flat, stages.items(), strict=True):
        steps = np.array([point.step for point in points])
        losses = np.array([point.loss for point in points])
        axes.plot(steps, losses, color="#0072B2", alpha=0.45, linewidth=0.8)
        width = max(1, round(_SMOOTHED_SHARE * len(points)))
        smooth = np.convolve(losses, np.full(width, 1 / width), mode="valid")
        axes.plot(steps[width - 1 :], smooth, color="#0072B2", linewidth=1.6)
        axes.set_title(name)
        axes.set_xlabel("step")
        axes.set_ylabel("loss")
        axes.grid(axis="y", alpha=0.3)
    return figure


def _configuration(manifest: Manifest) -> str:
    text = yaml.safe_dump(manifest.training, sort_keys=False, allow_unicode=True)
    return html.section("Configuration", html.preformatted(text))
