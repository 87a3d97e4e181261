"""The training curves of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from longtail.training.evaluation.figures import new_figure
from longtail.training.runtime.run_log import ProgressPoint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SMOOTHED_SHARE = 0.05
"""Of a stage's points, that are averaged into one of the smooth curve."""


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
