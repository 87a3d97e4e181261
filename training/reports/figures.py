"""The figures of a report: training curves, and any figure as pictures for light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO

import numpy as np
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

from training.runtime.run_log import ProgressPoint

_SMOOTHED_SHARE = 0.05
"""Of a stage's points, that are averaged into one of the smooth curve."""
_DARK_PAGE = 0.09
"""Lightness of a dark page, that white becomes."""
_DPI = 130


def draw_curves(stages: Mapping[str, Sequence[ProgressPoint]]) -> Figure:
    """Draw the loss of each stage over its steps, as it was and averaged.

    Args:
        stages: By name, at least one; each with at least one point.
    """
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
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


def light_and_dark(figure: Figure) -> tuple[bytes, bytes]:
    """Return a figure as PNG for a light page, and for a dark one; the figure is changed.

    On the dark one greys are turned over, white into the page's own; colours stay.
    """
    light = _png(figure)
    for artist in (figure, *figure.findobj()):
        _turn_over(artist)
    return light, _png(figure)


def _png(figure: Figure) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


def _turn_over(artist: Artist) -> None:
    if isinstance(artist, Patch):
        artist.set_facecolor(_turned(artist.get_facecolor()))
        artist.set_edgecolor(_turned(artist.get_edgecolor()))
    elif isinstance(artist, Line2D):
        # All are read before one is set: a marker's colours may follow the line's.
        line, face, edge = map(
            _turned,
            (artist.get_color(), artist.get_markerfacecolor(), artist.get_markeredgecolor()),
        )
        artist.set_color(line)
        artist.set_markerfacecolor(face)
        artist.set_markeredgecolor(edge)
    elif isinstance(artist, Text):
        artist.set_color(_turned(artist.get_color()))


def _turned(colour: object) -> tuple[float, float, float, float]:
    red, green, blue, alpha = map(float, to_rgba(colour))  # type: ignore[arg-type]
    if max(red, green, blue) - min(red, green, blue) > 1e-6:
        return red, green, blue, alpha
    grey = _DARK_PAGE + (1 - _DARK_PAGE) * (1 - red)
    return grey, grey, grey, alpha
