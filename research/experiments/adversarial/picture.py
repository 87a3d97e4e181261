"""The picture of learning curves: the best candidate of each method over time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from longtail.training.evaluation.plots import new_figure
from research.experiments.adversarial.curves import Clock, Settings, curves_of
from research.experiments.adversarial.run import best_candidates
from research.experiments.adversarial.trial_runner import TREE, TRUE, Criterion
from research.experiments.trials import Found

_WITHOUT_STEPS = {TRUE: "p_D itself", TREE: "tree alone"}
_COLOURS: Mapping[str, str] = {
    "adversarial": "#009E73", "uniform": "#CC79A7", "frequency": "#D55E00", "nce": "#E69F00",
    "one_versus_each": "#56B4E9", "augment_and_reduce": "#0072B2", "softmax": "#000000",
}  # fmt: skip
_PANELS: Mapping[Criterion, str] = {
    "log_likelihood": "log likelihood a pair (nats)",
    "accuracy": "accuracy",
}
_CLOCK_NAMES: Mapping[Clock, str] = {"cpu": "CPU time", "wall": "wall-clock time"}


def draw_adversarial(found: Found, clock: Clock) -> Figure:
    """Draw log likelihood and accuracy over time, a row of two panels for each task (Figure 1).

    Each panel has the candidates that are best at what it shows.

    Args:
        found: Findings of all tasks.
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
