"""Figures 1 and 4 of DEPL, and the differences between settings."""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from longtail.models.names import CLASSIFIER, RETRIEVAL, SPARSE
from longtail.training.evaluation.plots import draw_f1_by_rank, new_figure
from research.experiments.depl.ablations import BASE
from research.experiments.depl.claims import compared_settings
from research.experiments.depl.evidence import Arm, Evidence
from research.experiments.trials import error_or_nan

_TEXTS = (
    BASE, "name_only", "tokens_8", "tokens_16", "tokens_32", "keywords_8", "keywords_16",
    "keywords_32", "alternative_names", "parents", "names_and_parents",
)  # fmt: skip
_COLOURS = ("#0072B2", "#009E73", "#D55E00")


def draw_ablations(evidence: Evidence) -> Figure:
    """Draw the scorers by label rank (Figure 1), label texts (Figure 4), and all differences."""
    heights = (3, 2, 3) if compared_settings(evidence) else (3, 2)
    figure = new_figure(10.0, 1.6 * sum(heights))
    ranks, texts, *differences = figure.subplots(len(heights), 1, height_ratios=heights)
    scorers = [Arm(scorer, BASE) for scorer in evidence.found]
    draw_f1_by_rank(
        ranks,
        {arm.scorer: evidence.label_f1(arm) for arm in scorers if evidence.has(arm)},
        evidence.training_counts,
        evidence.k,
    )
    ranks.legend(fontsize=8, loc="upper left")
    _draw_texts(texts, evidence)
    for axes in differences:
        _draw_differences(axes, evidence)
    return figure


def _draw_texts(axes: Axes, evidence: Evidence) -> None:
    arms = {name: Arm(RETRIEVAL, name) for name in _TEXTS}
    arms = {CLASSIFIER: Arm(CLASSIFIER, BASE), **arms, SPARSE: Arm(SPARSE, BASE)}
    shown = {
        name: estimate
        for name, arm in arms.items()
        if evidence.has(arm) and (estimate := evidence.estimate(arm, evidence.tail_f1))
    }
    axes.bar(
        range(len(shown)),
        [100 * estimate.mean for estimate in shown.values()],
        yerr=[100 * error_or_nan(estimate) for estimate in shown.values()],
        color=[_COLOURS[0] if arms[name].scorer == RETRIEVAL else "0.6" for name in shown],
        capsize=2,
    )
    axes.set_title(f"{RETRIEVAL} by label text, beside scorers that read none (grey)")
    axes.set_ylabel(f"{evidence.tail_f1} (%)")
    _name_bars(axes, shown)


def _draw_differences(axes: Axes, evidence: Evidence) -> None:
    pairs = compared_settings(evidence)
    figures = (evidence.precision, f"PSP@{evidence.k}", evidence.tail_f1)
    width = 0.8 / len(figures)
    for index, (name, colour) in enumerate(zip(figures, _COLOURS, strict=True)):
        shown = {
            position: found.advantage
            for position, (setting, other) in enumerate(pairs)
            if (found := evidence.difference(Arm(RETRIEVAL, setting), Arm(RETRIEVAL, other), name))
        }
        axes.bar(
            [position + (index - 1) * width for position in shown],
            [100 * estimate.mean for estimate in shown.values()],
            width,
            yerr=[100 * error_or_nan(estimate) for estimate in shown.values()],
            label=name, color=colour, capsize=2,
        )  # fmt: skip
    axes.axhline(0, color="0.3", linewidth=0.8)
    axes.set_title(f"{RETRIEVAL} of each setting less that of another")
    axes.set_ylabel("difference (points of percent)")
    _name_bars(axes, [f"{setting}\n- {other}" for setting, other in pairs])
    axes.legend(fontsize=8)


def _name_bars(axes: Axes, names: Iterable[str]) -> None:
    kept = list(names)
    axes.set_xticks(range(len(kept)), kept, rotation=30, ha="right", fontsize=8)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
