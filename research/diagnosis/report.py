"""A diagnosis as JSON, as a table by frequency of the labels, and as a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Bool, Float64
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from longtail.models.labels.catalogue import LabelCatalogue
from longtail.training.evaluation.by_frequency import ALL_LABELS, FREQUENCY_BINS, label_subsets
from longtail.training.evaluation.plots import write_figure
from research.diagnosis.measure import Diagnosis, KeywordFindings
from research.diagnosis.theory import least_margin

RESULT_NAMES = ("theory.json", "theory.md", "theory.png")
_HEADER = (
    ("training documents", "bin", "s"),
    ("keywords", "keywords", "d"),
    ("labels", "num_labels", "d"),
    ("delta", "delta", ".4f"),
    ("epsilon", "epsilon", ".2g"),
    ("epsilon > delta", "epsilon_above_delta", ".1%"),
    ("bound", "bound", ".3f"),
    ("bound < 1", "bound_below_1", ".1%"),
    ("missed", "missed", ".1%"),
    ("kept", "kept", ".1%"),
    ("sharp bound", "sharp_bound", ".3f"),
    ("sharp bound < 1", "sharp_bound_below_1", ".1%"),
)
_EXPLANATION = """\
- delta, epsilon, bound: medians over the labels, in the paper's normalisation. Of a label: the \
smallest delta that holds on all of its documents (Definition 1), its least error margin \
(Definition 2), and 4 M exp(-(epsilon - delta)^2 d/50), at most 1 (Theorem 3).
- missed: of the score that positive weights give a label's documents, the share that is not on \
its keywords; median.
- kept: documents on which the keywords alone keep the label above all that its classifier ranks \
lower; mean over the labels.
- sharp bound: the same error as in Theorem 3, bounded by the sum of 1/2 (1 - cos^2)^(d/2); mean \
over the labels, and the share of labels with a mean below 1."""


def write_diagnosis(found: Diagnosis, catalogue: LabelCatalogue, folder: Path) -> list[Path]:
    """Write theory.json, theory.md and theory.png, and return their paths.

    Args:
        found: What to write.
        catalogue: The labels that it is about.
        folder: Made if it is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in RESULT_NAMES]
    content = json.dumps(diagnosis_to_json(found, catalogue), indent=1, ensure_ascii=False)
    paths[0].write_text(content + "\n", "utf-8")
    paths[1].write_text(diagnosis_to_markdown(found, catalogue) + "\n", "utf-8")
    write_figure(draw_diagnosis(found, catalogue), paths[2])
    return paths


def summary_rows(
    found: Diagnosis, catalogue: LabelCatalogue
) -> list[dict[str, str | int | float | None]]:
    """Return one row for each frequency bin that has labels, and each number of keywords.

    Shares are fractions; None where no label of the bin has a value.
    """
    return [
        {
            "bin": name,
            "keywords": each.count,
            "num_labels": int(np.count_nonzero(is_in_bin)),
            "delta": _median(each.delta_max[is_in_bin]),
            "epsilon": _median(found.epsilon_min[is_in_bin]),
            "epsilon_above_delta": float((found.epsilon_min > each.delta_max)[is_in_bin].mean()),
            "bound": _median(each.bound[is_in_bin]),
            "bound_below_1": float((each.bound < 1)[is_in_bin].mean()),
            "missed": _median(each.missed[is_in_bin]),
            "kept": float(each.kept[is_in_bin].mean()),
            "sharp_bound": float(each.sharp_bound[is_in_bin].mean()),
            "sharp_bound_below_1": float((each.sharp_bound < 1)[is_in_bin].mean()),
        }
        for name, is_in_bin in _bins(found, catalogue).items()
        for each in found.findings
    ]


def diagnosis_to_json(found: Diagnosis, catalogue: LabelCatalogue) -> dict[str, object]:
    """Return the normalisation, the summary, and what was found of every label."""
    norm = found.normalisation
    labels = [
        {
            "id": catalogue[index].id,
            "name": catalogue[index].name,
            "training_count": catalogue[index].training_count,
            "num_documents": int(found.num_documents[row]),
            "num_negatives": int(found.num_negatives[row]),
            "epsilon_min": float(found.epsilon_min[row]),
            "epsilon_low": float(found.epsilon_low[row]),
            "keywords": {str(each.count): _of_label(each, row) for each in found.findings},
        }
        for row, index in enumerate(found.labels.tolist())
    ]
    return {
        "dim": found.dim,
        "least_margin": least_margin(_typical_negatives(found), found.dim),
        "normalisation": {
            "scale": norm.scale,
            "constant": norm.constant,
            "shift_length": float(np.linalg.norm(norm.shift)),
        },
        "summary": summary_rows(found, catalogue),
        "labels": labels,
    }


def diagnosis_to_markdown(found: Diagnosis, catalogue: LabelCatalogue) -> str:
    """Return the summary as a table, with how to read it."""
    negatives = _typical_negatives(found)
    need = least_margin(negatives, found.dim)
    lines = [
        f"{len(found.labels)} of {len(catalogue)} labels have a classifier and documents here.",
        f"{negatives} negatives are ranked below a label (the median over the labels).",
        f"Theorem 3 then needs an epsilon - delta above {need:.2f} with {found.dim} dimensions.",
        "Epsilon and delta lie between 0 and 1.",
        "",
        "| " + " | ".join(title for title, _, _ in _HEADER) + " |",
        "|" + "---|" * len(_HEADER),
    ]
    for row in summary_rows(found, catalogue):
        cells = ("-" if row[key] is None else format(row[key], form) for _, key, form in _HEADER)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", _EXPLANATION])


def draw_diagnosis(found: Diagnosis, catalogue: LabelCatalogue) -> Figure:
    """Draw what keywords keep, what they miss, and delta beside epsilon, each by frequency bin."""
    bins = _bins(found, catalogue)
    figure = Figure(figsize=(9, 10), layout="constrained")
    FigureCanvasAgg(figure)
    kept, missed, margins = figure.subplots(3, 1)
    width = 0.84 / (len(found.findings) + 1)
    shades = matplotlib.colormaps["viridis"](np.linspace(0.1, 0.8, len(found.findings)))
    for place, (each, shade) in enumerate(zip(found.findings, shades, strict=True)):
        at = np.arange(len(bins)) + (place - len(found.findings) / 2) * width
        means = [100 * each.kept[rows].mean() for rows in bins.values()]
        sure = [100 * (1 - each.sharp_bound[rows].mean()) for rows in bins.values()]
        bars = kept.bar(at + width / 2, means, width, color=shade, alpha=0.45)
        kept.bar_label(bars, fmt="%.0f", fontsize=7, padding=1)
        kept.bar(at + width / 2, sure, width, color=shade, label=f"{each.count} keywords")
        _spread(missed, at, [100 * each.missed[rows] for rows in bins.values()], shade)
        _spread(margins, at, [each.delta_max[rows] for rows in bins.values()], shade)
    at = np.arange(len(bins)) + len(found.findings) / 2 * width
    _spread(margins, at, [found.epsilon_min[rows] for rows in bins.values()], "black", "epsilon")
    kept.set_title(
        "Documents on which keywords alone keep the label above all ranked lower\n"
        f"(full colour: a lower bound with {found.dim} random dimensions, by the sharp bound)"
    )
    kept.set_ylabel("documents (%)")
    kept.set_ylim(0, 109)  # room for a 100 above the highest bar
    missed.set_title("Positive score that is not on keywords")
    missed.set_ylabel("share (%), median, 10% to 90%")
    missed.set_ylim(-3, 103)
    _finish_margins(margins, found)
    ticks = [f"{name}\n({np.count_nonzero(rows):,} labels)" for name, rows in bins.items()]
    for axes in (kept, missed, margins):
        axes.set_xticks(range(len(ticks)), ticks)
        axes.set_xlim(-0.5, len(ticks) - 0.5)
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
    figure.legend(loc="outside upper center", ncols=len(found.findings) + 1)
    return figure


def _finish_margins(axes: Axes, found: Diagnosis) -> None:
    need = least_margin(_typical_negatives(found), found.dim)
    axes.axhline(need, color="0.4", linestyle="--", linewidth=1)
    says = f"Theorem 3 speaks of epsilon - delta above {need:.2f} (d = {found.dim})"
    axes.text(
        0.005, need, says, transform=axes.get_yaxis_transform(), va="bottom", fontsize=8,
        color="0.3",
    )  # fmt: skip
    axes.set_yscale("log")
    axes.set_ylim(top=10 * need)
    axes.set_title("Delta (by keywords) and error margin epsilon, in the paper's normalisation")
    axes.set_ylabel("median, 10% to 90%")
    axes.set_xlabel("training documents of the label")


def _spread(
    axes: Axes,
    at: Float64[np.ndarray, bin],
    parts: list[Float64[np.ndarray, _]],
    colour: Any,
    label: str | None = None,
) -> None:
    """Draw the median of each part as a point, and its 10th to 90th percentile as a line."""
    known = [part[~np.isnan(part)] for part in parts]
    has_any = np.array([len(part) > 0 for part in known])
    spread = [np.quantile(part, (0.1, 0.5, 0.9)) for part in known if len(part)]
    low, middle, high = np.array(spread).reshape(-1, 3).T
    errors = np.array([middle - low, high - middle])
    axes.errorbar(
        at[has_any], middle, errors, fmt="o", color=colour, capsize=3, markersize=5, label=label
    )


def _bins(found: Diagnosis, catalogue: LabelCatalogue) -> dict[str, Bool[np.ndarray, label]]:
    """Return which of the labels found belong to each frequency bin that has any, and to all."""
    subsets = label_subsets(catalogue.training_counts[found.labels])
    names = [name for name in FREQUENCY_BINS if subsets[name].any()]
    return {name: subsets[name] for name in [*names, ALL_LABELS]}


def _typical_negatives(found: Diagnosis) -> int:
    return int(np.median(found.num_negatives))


def _median(values: Float64[np.ndarray, label]) -> float | None:
    return None if np.isnan(values).all() else float(np.nanmedian(values))


def _of_label(each: KeywordFindings, row: int) -> dict[str, float | None]:
    missed = float(each.missed[row])
    return {
        "delta_max": float(each.delta_max[row]),
        "delta_mean": float(each.delta_mean[row]),
        "bound": float(each.bound[row]),
        "missed": None if np.isnan(missed) else missed,
        "kept": float(each.kept[row]),
        "sharp_bound": float(each.sharp_bound[row]),
    }
