"""Pictures of how well rare labels are found, after DEPL, 2023, Figure 1, and empty figures.

Drawn through matplotlib's objects, without pyplot and without a display; no other module imports it
(the extra `plots`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from scipy.sparse import csr_array

from longtail.models.errors import ConfigError, DataError
from longtail.models.extras import is_installed, needs, require
from longtail.models.metrics import (
    RankedEvaluation,
    join_truth,
    label_f1_at,
    ndcg_at,
    recall_at,
)
from longtail.models.ranking.top_k import Ranking
from longtail.training.evaluation.by_frequency import (
    FREQUENCY_BINS,
    SHOT_GROUPS,
    SHOT_NAMES,
    label_subsets,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
        **padding: Padding of matplotlib's constrained layout, in inches, such as `h_pad`.
    """
    require("plots", "a picture")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    figure.set_layout_engine("constrained", **padding)
    FigureCanvasAgg(figure)
    return figure


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG or SVG, by the suffix of the path."""
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


_NUM_BINS = 35
# Okabe & Ito 2008: colour-blind readers can distinguish them; yellow is left out: too faint.
# The last four are Tol's muted ones, for what a model of all scorers and both baselines needs more.
_COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000",
    "#882255", "#999933", "#7F7F7F", "#332288",
)  # fmt: skip
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p")
_LINE_STYLES: tuple[Literal["-", "--", ":"], ...] = ("-", "--", ":")
_MAX_LEGEND_COLUMNS = 5
_MIN_REGION = 0.04  # share of the labels below which a region's name would not fit above it


def draw_by_frequency(
    rankings: Mapping[str, Ranking],
    truth: Float32[csr_array, "document label"],
    training_counts: Int64[np.ndarray, label],
    k: int = 5,
    recall_k: int = 10,
) -> Figure:
    """Draw macro-F1@k by label rank, and what rare and common labels are found by every scorer.

    Above, as in DEPL, Figure 1: the labels from rare to common in bins of equal size. Below:
    recall in the bins of `FREQUENCY_BINS`, then recall and nDCG in the groups of `SHOT_GROUPS`,
    each over the documents that carry one of its labels.

    Args:
        rankings: By name of the scorer, one row a document, over all labels.
        truth: Ones where the document carries the label.
        training_counts: Number of training documents that carry each label.
        k: Places that count for F1; 5 by default, DEPL's choice for all its sets but Wiki10-31K.
        recall_k: Places that count for recall and nDCG.
    """
    if not rankings:
        raise DataError("plot: got no rankings, expected at least one")
    joined = {name: join_truth(ranking.labels, truth) for name, ranking in rankings.items()}
    figure = new_figure(9.0, 11.0, h_pad=0.1)
    above, middle, below = figure.subplots(3, 1, height_ratios=(3, 2, 2))
    label_f1 = {name: label_f1_at(one, k) for name, one in joined.items()}
    draw_f1_by_rank(above, label_f1, training_counts, k)
    _draw_recall_by_bin(middle, joined, training_counts, recall_k)
    _draw_shot_groups(below, joined, training_counts, recall_k)
    handles, names = above.get_legend_handles_labels()
    num_rows = math.ceil(len(names) / _MAX_LEGEND_COLUMNS)
    figure.legend(
        handles, names, loc="outside upper center", ncols=math.ceil(len(names) / num_rows)
    )
    return figure


def macro_f1_by_rank(
    label_f1: Float64[np.ndarray, label],
    training_counts: Int64[np.ndarray, label],
) -> tuple[Float64[np.ndarray, bin], Float64[np.ndarray, bin]]:
    """Return the middle rank and the mean F1 of bins of labels, from rare to common.

    Labels are ranked by training documents, of equally frequent ones the smaller index first. The
    sizes of the bins differ by one at most, so no last bin of a few labels jumps about.
    """
    order = np.argsort(training_counts, kind="stable")
    num_bins = min(len(order), _NUM_BINS)
    ranks = np.array([part.mean() for part in np.array_split(np.arange(len(order)) + 1, num_bins)])
    f1 = np.array([part.mean() for part in np.array_split(label_f1[order], num_bins)])
    return ranks, f1


def draw_f1_by_rank(
    axes: Axes,
    label_f1: Mapping[str, Float64[np.ndarray, label]],
    training_counts: Int64[np.ndarray, label],
    k: int,
) -> None:
    """Draw macro-F1@k by label rank, from rare to common, a line for each scorer (DEPL, Figure 1).

    Args:
        axes: Where.
        label_f1: F1@k of each label, by name of the scorer.
        training_counts: Number of training documents that carry each label.
        k: Places that counted.
    """
    for index, (name, one) in enumerate(label_f1.items()):
        ranks, f1 = macro_f1_by_rank(one, training_counts)
        (line,) = axes.plot(ranks, 100 * f1, label=name, markersize=4, linewidth=1.5)
        line.set_color(_COLOURS[index % len(_COLOURS)])
        line.set_marker(_MARKERS[index % len(_MARKERS)])
        line.set_linestyle(_LINE_STYLES[(index // len(_COLOURS)) % len(_LINE_STYLES)])
    num_labels = len(training_counts)
    _mark_frequency_bins(axes, training_counts)
    size = round(num_labels / min(num_labels, _NUM_BINS))
    axes.set_title(f"Macro-averaged F1@{k} by label rank (about {size:,} labels a point)", pad=30)
    axes.set_xlabel("rank of the label by training documents, from rare to common")
    axes.set_ylabel(f"macro-averaged F1@{k} (%)")
    axes.set_xlim(0, num_labels + 1)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)


def _mark_frequency_bins(axes: Axes, training_counts: Int64[np.ndarray, label]) -> None:
    """Divide the label ranks where one frequency bin ends, and name the bins above."""
    num_labels = len(training_counts)
    subsets = label_subsets(training_counts)
    above = axes.get_xaxis_transform()  # x in data, y in shares of the axes' height
    start = 0
    for name in FREQUENCY_BINS:
        stop = start + int(np.count_nonzero(subsets[name]))
        if 0 < stop < num_labels:
            axes.axvline(stop + 0.5, color="0.6", linewidth=0.8, zorder=0)
        if stop - start >= _MIN_REGION * num_labels:
            middle = (start + stop) / 2
            axes.text(middle, 1.015, name, transform=above, ha="center", fontsize=9, color="0.3")
        elif stop == num_labels > start:
            # The commonest labels are few: their name is next to the axes' right end.
            axes.text(1.002, 1.015, name, transform=axes.transAxes, fontsize=9, color="0.3")
        start = stop
    axes.text(
        0.5, 1.06, "training documents of the label:", transform=axes.transAxes,
        ha="center", fontsize=9, color="0.3",
    )  # fmt: skip


def _draw_recall_by_bin(
    axes: Axes,
    joined: Mapping[str, RankedEvaluation],
    training_counts: Int64[np.ndarray, label],
    k: int,
) -> None:
    subsets = label_subsets(training_counts)
    sizes = {name: int(np.count_nonzero(subsets[name])) for name in FREQUENCY_BINS}
    groups = [
        (f"{name}\n({size:,} labels)", subsets[name], recall_at) for name, size in sizes.items()
    ]
    _draw_bars(axes, joined, groups, k)
    axes.set_title(f"Recall@{k} by training documents of the label")
    axes.set_xlabel("training documents of the label")
    axes.set_ylabel(f"recall@{k} (%)")


def _draw_shot_groups(
    axes: Axes,
    joined: Mapping[str, RankedEvaluation],
    training_counts: Int64[np.ndarray, label],
    k: int,
) -> None:
    subsets = label_subsets(training_counts)
    groups = [
        (f"{metric}\n{SHOT_NAMES[name]}", subsets[name], measured)
        for metric, measured in ((f"R@{k}", recall_at), (f"nDCG@{k}", ndcg_at))
        for name in SHOT_GROUPS
    ]
    _draw_bars(axes, joined, groups, k)
    axes.set_title("Frequent (50 or more training documents), few-shot and zero-shot labels")
    axes.set_ylabel("%")


def _draw_bars(
    axes: Axes,
    joined: Mapping[str, RankedEvaluation],
    groups: Sequence[tuple[str, Bool[np.ndarray, label], Callable[[RankedEvaluation, int], float]]],
    k: int,
) -> None:
    width = 0.84 / len(joined)
    for index, (name, one) in enumerate(joined.items()):
        kept = [(one.restricted_to(is_in), measured) for _, is_in, measured in groups]
        positions = [position for position, (part, _) in enumerate(kept) if part.num_documents]
        empty = sorted({*range(len(groups))}.difference(positions))  # the same for all scorers
        values = [100 * kept[position][1](kept[position][0], k) for position in positions]
        offset = (index - (len(joined) - 1) / 2) * width
        bars = axes.bar(
            [position + offset for position in positions], values, width, label=name,
            color=_COLOURS[index % len(_COLOURS)], hatch="//" * (index // len(_COLOURS)),
        )  # fmt: skip
        axes.bar_label(bars, fmt="%.0f", fontsize=7, padding=1)
    for position in empty:
        axes.text(position, 3, "no documents", ha="center", fontsize=8, color="0.4")
    axes.set_xticks(range(len(groups)), [name for name, _, _ in groups])
    # Matplotlib ends the axis at the last bar: groups without one would fall on the frame.
    axes.set_xlim(-0.5, len(groups) - 0.5)
    axes.set_ylim(0, 109)  # room for a 100 above the highest bar
    axes.set_yticks(range(0, 101, 20))
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
