"""What is reported of learning curves: the best setting of each method, and how soon it is good.

The time of a curve begins with the fit of the label tree for the methods that draw from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import get_args

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from longtail.training.evaluation.figures import new_figure
from longtail.training.evaluation.tables import markdown_table
from research.experiments.adversarial.curves import (
    BASELINE,
    SHARES,
    Clock,
    Settings,
    TimeToLevel,
    candidates_in,
    curves_of,
    levels,
    time_to_level,
)
from research.experiments.adversarial.run import best_candidates
from research.experiments.adversarial.trial_runner import CRITERIA, TREE, TRUE, Criterion
from research.experiments.adversarial.tuning import METHODS
from research.experiments.trials import Estimate, Found

_WITHOUT_STEPS = {TRUE: "p_D itself", TREE: "tree alone"}
_COLUMNS = (
    "method", "rate", "penalty", "seeds", "steps", "CPU, s", "wall, s", "log likelihood",
    "accuracy, %",
)  # fmt: skip
_HEADING = """# Adversarial negatives

At the end of training: steps, seconds of the process and by the clock on the wall (fit of the tree
included, measuring and tuning not), nats a pair, and the share of documents whose best-scored label
is one of theirs; mean ± standard error over the seeds. Each method with the learning rate and the
penalty that are best by the criterion of the table, on documents that are not measured.

How soon a method is as good as {baseline} negatives: seconds ({clock}) to 90, 95 and 99 % of the
way from scores of zero to the best point of any of their curves, and how many times as soon as they
are there themselves; each method with the rate and the penalty that are quickest to it on the
documents measured, which need not be those that are best at the end.
"""
_COLOURS: Mapping[str, str] = {
    "adversarial": "#009E73", "uniform": "#CC79A7", "frequency": "#D55E00", "nce": "#E69F00",
    "one_versus_each": "#56B4E9", "augment_and_reduce": "#0072B2", "softmax": "#000000",
}  # fmt: skip
_PANELS: Mapping[Criterion, str] = {
    "log_likelihood": "log likelihood a pair (nats)",
    "accuracy": "accuracy",
}
_CLOCK_NAMES: Mapping[Clock, str] = {"cpu": "CPU time", "wall": "wall-clock time"}


def adversarial_markdown(found: Found, clock: Clock) -> str:
    """Return two tables for each task and criterion: the end of training, and how soon.

    Args:
        found: Of all tasks.
        clock: Whose seconds the times to a level are.
    """
    parts = [_HEADING.format(clock=_CLOCK_NAMES[clock], baseline=BASELINE)]
    for task, settings in found.items():
        for criterion in CRITERIA:
            table = markdown_table(_COLUMNS, _rows(settings, criterion))
            parts.append(f"## {task}, by {criterion.replace('_', ' ')}\n\n{table}\n")
            if speed := _speed_table(settings, criterion, clock):
                parts.append(f"{speed}\n")
        if TREE in settings:
            tree = {name: estimate.mean for name, estimate in settings[TREE].items()}
            parts.append(
                f"The tree took {tree['cpu_s']:.1f} s of CPU, {tree['wall_s']:.1f} s by the clock; "
                f"lambda_n = {tree['regulariser']:g}.\n"
            )
    return "\n".join(parts)


def _rows(settings: Settings, criterion: Criterion) -> list[list[str]]:
    rows = [
        [title, "-", "-", "-", "0", *_seconds_of(settings[name]), *_quality(settings[name], "")]
        for name, title in _WITHOUT_STEPS.items()
        if name in settings
    ]  # fmt: skip
    for method, candidate in best_candidates(settings, criterion).items():
        figures = settings[candidate.setting]
        cpu, wall = (
            list(curves_of(settings, candidate, criterion, each).values())
            for each in get_args(Clock)
        )
        last = f" {len(cpu[0].seconds) - 1}"
        seconds = [Estimate(tuple(float(x.seconds[-1]) for x in curves)) for curves in (cpu, wall)]
        rows.append(
            [
                method, f"{candidate.learning_rate:g}", candidate.penalty, str(len(cpu)),
                f"{figures['steps' + last].mean:.0f}",
                *(_text(each, 1) for each in seconds),
                *_quality(figures, last),
            ]
        )  # fmt: skip
    return rows


def _speed_table(settings: Settings, criterion: Criterion, clock: Clock) -> str:
    """Return the times of all methods to each level; nothing without the baseline."""
    by_seed = levels(settings, criterion)
    if not by_seed:
        return ""
    header = ["method"]
    for share in SHARES:
        level = Estimate(tuple(own[share] for own in by_seed.values()), tuple(by_seed))
        header += [f"{share:.0%}: {_level_text(level, criterion)}, s", "times as soon", "with"]
    rows = []
    for method in METHODS:
        if candidates_in(settings, method):
            times = [time_to_level(settings, method, criterion, each, clock) for each in SHARES]
            rows.append([method, *(cell for time in times for cell in _time_cells(time))])
    return markdown_table(header, rows)


def _level_text(level: Estimate, criterion: Criterion) -> str:
    return f"{100 * level.mean:.1f} %" if criterion == "accuracy" else f"{level.mean:.3f}"


def _time_cells(time: TimeToLevel) -> list[str]:
    if not math.isfinite(time.seconds.mean):
        return ["never", "-", "-"]
    candidate = time.candidate
    what = f"{candidate.learning_rate:g}, {candidate.penalty}"
    return [_text(time.seconds, 2), _text(time.quotient, 2), what]


def _seconds_of(figures: Mapping[str, Estimate]) -> list[str]:
    return [_text(figures[name], 1) if name in figures else "-" for name in ("cpu_s", "wall_s")]


def _quality(figures: Mapping[str, Estimate], suffix: str) -> list[str]:
    accuracy = Estimate(tuple(100 * value for value in figures["accuracy" + suffix].values))
    return [_text(figures["log_likelihood" + suffix], 3), _text(accuracy, 1)]


def _text(estimate: Estimate, digits: int) -> str:
    error = estimate.standard_error
    return f"{estimate.mean:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


def draw_adversarial(found: Found, clock: Clock) -> Figure:
    """Draw log likelihood and accuracy over time, a row of two panels for each task (Figure 1).

    Each panel has the candidates that are best at what it shows.

    Args:
        found: Of all tasks.
        clock: Whose seconds.
    """
    figure = new_figure(11.0, 4.0 * len(found))
    rows = figure.subplots(len(found), 2, squeeze=False)
    for (task, settings), panels in zip(found.items(), rows, strict=True):
        for axes, (quantity, title) in zip(panels, _PANELS.items(), strict=True):
            _draw_curves(axes, settings, quantity, clock)
            axes.set_title(task)
            axes.set_xlabel(f"{_CLOCK_NAMES[clock]} (s), fit of the tree included")
            axes.set_ylabel(title)
        panels[0].legend(fontsize=8, loc="lower right")
    return figure


def _draw_curves(axes: Axes, settings: Settings, quantity: Criterion, clock: Clock) -> None:
    for method, candidate in best_candidates(settings, quantity).items():
        curves = list(curves_of(settings, candidate, quantity, clock).values())
        seconds = np.mean([each.seconds for each in curves], axis=0)
        values = np.array([each.values for each in curves])
        (line,) = axes.plot(seconds, values.mean(axis=0), label=method, marker=".")
        line.set_color(_COLOURS[method])
        axes.fill_between(
            seconds, values.min(axis=0), values.max(axis=0), color=_COLOURS[method], alpha=0.2
        )
    for name, style in ((TRUE, "--"), (TREE, ":")):
        if name in settings:
            level = settings[name][quantity].mean
            axes.axhline(level, color="0.5", linestyle=style, label=_WITHOUT_STEPS[name])
    axes.set_xscale("log")
    axes.grid(alpha=0.3)
