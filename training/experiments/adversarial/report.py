"""What is reported of learning curves: the best setting of each method, and how soon it is good.

The time of a curve begins with the fit of the label tree for the methods that draw from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float64
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from training.configuration.linear import MethodName
from training.evaluation.tables import markdown_table
from training.experiments.adversarial.run import Settings, best_candidates
from training.experiments.adversarial.trial_runner import (
    CRITERIA,
    TREE,
    TRUE,
    WITH_TREE,
    Criterion,
    name_at,
)
from training.experiments.adversarial.tuning import Candidate
from training.experiments.trials import Estimate, Found, new_figure

Clock = Literal["cpu", "wall"]
"""Seconds of the process, which other work on the machine hardly changes, or those on the wall."""

_BASELINE: MethodName = "uniform"
_WITHOUT_STEPS = {TRUE: "p_D itself", TREE: "tree alone"}
_COLUMNS = (
    "method", "rate", "penalty", "seeds", "steps", "CPU, s", "wall, s", "log likelihood",
    "accuracy, %", "to uniform's end, s", "times as soon", "as its whole training",
)  # fmt: skip
_HEADING = """# Adversarial negatives

At the end of training: steps, seconds of the process and by the clock on the wall (fit of the tree
included, measuring and tuning not), nats a pair, and the share of documents whose best-scored label
is one of theirs; mean ± standard error over the seeds. Each method with the learning rate and the
penalty that are best by the criterion of the table, on documents that are not measured. "To
uniform's end": seconds ({clock}) until the criterion is what
uniform negatives end with; how
many times as soon as they first reach it themselves; and as their whole training takes.
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


@dataclass(frozen=True, slots=True)
class Curve:
    """A learning curve of one seed; each array has an entry a point.

    Attributes:
        seconds: Of the clock that was asked for, the tree's fit included.
        values: Accuracy, or log likelihood.
    """

    seconds: Float64[np.ndarray, point]
    values: Float64[np.ndarray, point]

    def seconds_to(self, value: float) -> float:
        """Return when a value is reached first, by a line between points; inf if never."""
        reached = np.flatnonzero(self.values >= value)
        if not len(reached):
            return math.inf
        around = slice(max(0, int(reached[0]) - 1), int(reached[0]) + 1)
        return float(np.interp(value, self.values[around], self.seconds[around]))


def curves_of(
    settings: Settings, candidate: Candidate, quantity: Criterion, clock: Clock
) -> list[Curve]:
    """Return the curves of a candidate, one a seed."""
    figures = settings[candidate.setting]
    head = settings[TREE][f"{clock}_s"].mean if candidate.method in WITH_TREE else 0.0
    num_points = sum(name.startswith("steps ") for name in figures)
    seconds, values = (
        np.array([figures[name_at(figure, point)].values for point in range(num_points)]).T
        for figure in (f"{clock}_s", quantity)
    )
    return [Curve(head + own, reached) for own, reached in zip(seconds, values, strict=True)]


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """How soon a method is as good as uniform negatives are at their end.

    The target of a seed is what uniform negatives with that seed end with.

    Attributes:
        seconds: Until then; inf for a seed that never gets there.
        quotient: The seconds until uniform negatives first were as good themselves, divided by
            those.
        quotient_of_whole: The seconds that uniform negatives were trained, divided by those.
    """

    seconds: Estimate
    quotient: Estimate
    quotient_of_whole: Estimate


def speed_ups(settings: Settings, criterion: Criterion, clock: Clock) -> dict[MethodName, SpeedUp]:
    """Return how soon each method is as good as uniform negatives; empty without them.

    Args:
        settings: Of a task.
        criterion: What is to be as good, and what was tuned by.
        clock: Whose seconds.
    """
    best = best_candidates(settings, criterion)
    if _BASELINE not in best:
        return {}
    curves = {
        method: curves_of(settings, candidate, criterion, clock)
        for method, candidate in best.items()
    }
    baselines = curves[_BASELINE]
    return {method: _speed_up(own, baselines) for method, own in curves.items()}


def _speed_up(curves: list[Curve], baselines: list[Curve]) -> SpeedUp:
    rows = []
    for own, baseline in zip(curves, baselines, strict=False):  # as many seeds as both have
        target = float(baseline.values[-1])
        seconds = own.seconds_to(target)
        whole = float(baseline.seconds[-1])
        rows.append((seconds, baseline.seconds_to(target) / seconds, whole / seconds))
    return SpeedUp(*(Estimate(values) for values in zip(*rows, strict=True)))


def adversarial_markdown(found: Found, clock: Clock) -> str:
    """Return two tables for each task, one a criterion.

    Args:
        found: Of all tasks.
        clock: Whose seconds the times to uniform's end are.
    """
    parts = [_HEADING.format(clock=_CLOCK_NAMES[clock])]
    for task, settings in found.items():
        for criterion in CRITERIA:
            table = markdown_table(_COLUMNS, _rows(settings, criterion, clock))
            parts.append(f"## {task}, by {criterion.replace('_', ' ')}\n\n{table}\n")
        if TREE in settings:
            tree = {name: estimate.mean for name, estimate in settings[TREE].items()}
            parts.append(
                f"The tree took {tree['cpu_s']:.1f} s of CPU, {tree['wall_s']:.1f} s by the clock; "
                f"lambda_n = {tree['regulariser']:g}.\n"
            )
    return "\n".join(parts)


def _rows(settings: Settings, criterion: Criterion, clock: Clock) -> list[list[str]]:
    rows = [
        [title, "-", "-", "-", "0", *_seconds_of(settings[name]), *_quality(settings[name], ""),
         "-", "-", "-"]
        for name, title in _WITHOUT_STEPS.items()
        if name in settings
    ]  # fmt: skip
    found = speed_ups(settings, criterion, clock)
    for method, candidate in best_candidates(settings, criterion).items():
        figures = settings[candidate.setting]
        cpu, wall = (curves_of(settings, candidate, criterion, each) for each in get_args(Clock))
        last = f" {len(cpu[0].seconds) - 1}"
        seconds = [Estimate(tuple(float(x.seconds[-1]) for x in curves)) for curves in (cpu, wall)]
        rows.append(
            [
                method, f"{candidate.learning_rate:g}", candidate.penalty, str(len(cpu)),
                f"{figures['steps' + last].mean:.0f}",
                *(_text(each, 1) for each in seconds),
                *_quality(figures, last),
                *(_speed_up_cells(found[method]) if found else ["-"] * 3),
            ]
        )  # fmt: skip
    return rows


def _speed_up_cells(found: SpeedUp) -> list[str]:
    return [_text(found.seconds, 2), _text(found.quotient, 2), _text(found.quotient_of_whole, 2)]


def _seconds_of(figures: Mapping[str, Estimate]) -> list[str]:
    return [_text(figures[name], 1) if name in figures else "-" for name in ("cpu_s", "wall_s")]


def _quality(figures: Mapping[str, Estimate], suffix: str) -> list[str]:
    accuracy = Estimate(tuple(100 * value for value in figures["accuracy" + suffix].values))
    return [_text(figures["log_likelihood" + suffix], 3), _text(accuracy, 1)]


def _text(estimate: Estimate, digits: int) -> str:
    if not math.isfinite(estimate.mean):
        return "never"
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
        panels[0].legend(fontsize=8)
    return figure


def _draw_curves(axes: Axes, settings: Settings, quantity: Criterion, clock: Clock) -> None:
    for method, candidate in best_candidates(settings, quantity).items():
        curves = curves_of(settings, candidate, quantity, clock)
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
