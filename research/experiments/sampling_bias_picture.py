"""The picture of the experiment on sampling bias, and what it and its tables go through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from longtail.training.evaluation.figures import new_figure
from research.experiments.long_tail_profiles import Profile
from research.experiments.trials import Estimate, Found, error_or_nan

RETRIEVAL = "retrieval"
TASKS = (RETRIEVAL, *get_args(Profile))
RECALL_KS = (1, 10, 50)
SLICE_COLOURS = {"Head": "#0072B2", "Torso": "#009E73", "Tail": "#D55E00", "Full": "#000000"}


def draw_sampling_bias(found: Found) -> Figure:
    """Draw recall by k (Figure 2) and balanced errors (Figure 1), a bar for each third."""
    panels = []
    for task in (task for task in TASKS if task in found):
        if task == RETRIEVAL:
            panels += [(task, f"R@{k}", f"Recall@{k} of pairs (%)") for k in RECALL_KS]
        else:
            panels.append((task, "error", f"balanced error, {task} profile (%)"))
    figure = new_figure(11.0, 3.2 * len(panels))
    for axes, (task, prefix, title) in zip(
        figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels, strict=True
    ):
        _draw_slices(axes, found[task], prefix)
        axes.set_ylabel(title)
    return figure


def _draw_slices(axes: Axes, settings: Mapping[str, Mapping[str, Estimate]], prefix: str) -> None:
    names = list(settings)
    width = 0.8 / len(SLICE_COLOURS)
    for index, (name, colour) in enumerate(SLICE_COLOURS.items()):
        column = f"{prefix} {name}"
        shown_at = [position for position, each in enumerate(names) if column in settings[each]]
        if not shown_at:  # a STEP profile has no Torso
            continue
        shown: Sequence[Estimate] = [settings[names[position]][column] for position in shown_at]
        axes.bar(
            [position + (index - 1.5) * width for position in shown_at],
            [100 * estimate.mean for estimate in shown],
            width,
            yerr=[100 * error_or_nan(estimate) for estimate in shown],
            label=name, color=colour, capsize=2,
        )  # fmt: skip
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(ncols=len(SLICE_COLOURS), fontsize=8, loc="lower left", bbox_to_anchor=(0, 1))
