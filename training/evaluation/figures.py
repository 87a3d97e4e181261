"""Empty figures and their files; the only module that imports matplotlib (the extra `plots`).

Drawn through matplotlib's objects, without pyplot and without a display.
"""

from __future__ import annotations

import logging
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from longtail.models.errors import ConfigError
from longtail.models.extras import is_installed, needs, require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

_PAGE_DPI = 130


def can_draw() -> bool:
    """Return whether pictures can be drawn; if not, log once in a call how to install it."""
    if is_installed("plots"):
        return True
    logger.warning("no pictures: drawing them %s", needs("plots"))
    return False


def new_figure(width: float, height: float, **padding: float) -> Figure:
    """Return an empty figure.

    Args:
        width: In inches.
        height: In inches.
        **padding: Of matplotlib's constrained layout, in inches, such as `h_pad`.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    require("plots", "a picture")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    figure.set_layout_engine("constrained", **padding)
    FigureCanvasAgg(figure)
    return figure


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG or SVG, by the suffix of the path.

    Raises:
        ConfigError: The suffix is neither `.png` nor `.svg`.
    """
    if path.suffix not in {".png", ".svg"}:
        raise ConfigError(f"plot {path.name!r}: expected a name that ends in .png or .svg")
    # Without a date the same figure gives the same PNG.
    metadata = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(path, dpi=150, metadata=metadata)


def png_of(figure: Figure) -> bytes:
    """Return a figure as PNG, on white."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=_PAGE_DPI)
    return buffer.getvalue()
