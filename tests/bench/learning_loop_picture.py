"""The picture of a learning loop, from its record; its tables are filled by `docs/render.py`.

    python tests/bench/learning_loop_picture.py docs/results/learning-loop-demo.json

Writes a .png beside it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

LINES = {
    "loop": ("learns from corrections", "#0072B2", "o"),
    "retrained": ("trained in full after each step", "#D55E00", "s"),
    "never": ("never learns", "#7F7F7F", "^"),
}
"""Title, colour (Okabe & Ito 2008) and marker of each arm."""


def draw(steps: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw both metrics over the years: a line over the steps, a dot for each year.

    Args:
        steps: As the benchmark keeps them.
        path: The file's path.
    """
    figure = Figure(figsize=(9, 7), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for arm in LINES:
        _draw_arm(above, steps, arm, f"P@5, {arm}")
        _draw_arm(below, steps, arm, f"R@10 of new, {arm}")
    middles = [_middle(step) for step in steps]
    possible = [step["possible"] for step in steps]
    below.plot(
        middles, possible, color="black", linestyle=":", label="all labels that had a document"
    )
    above.set_ylabel("P@5 (%)")
    below.set_ylabel("R@10 of labels new since the start (%)")
    above.set_title("Each year's documents, asked before they are learned from")
    below.set_xlabel("year")
    for axes in (above, below):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        for step in steps[1:]:
            axes.axvline(step["years"][0] - 0.5, color="0.8", linewidth=0.8, zorder=0)
        axes.legend()
    figure.savefig(path, dpi=110)


def _draw_arm(axes: Axes, steps: Sequence[dict[str, Any]], arm: str, name: str) -> None:
    title, colour, marker = LINES[arm]
    years = [year for step in steps for year in step["by year"] if year[name] is not None]
    axes.scatter([x["year"] for x in years], [x[name] for x in years], color=colour, s=8, alpha=0.4)
    axes.plot(
        [_middle(step) for step in steps], [step[name] for step in steps],
        color=colour, marker=marker, label=title,
    )  # fmt: skip


def _middle(step: dict[str, Any]) -> float:
    return sum(step["years"]) / 2


def main() -> None:
    """Draw the picture of a record."""
    path = Path(sys.argv[1])
    record = json.loads(path.read_text(encoding="utf-8"))
    draw(record["figures"]["steps"], path.with_suffix(".png"))


if __name__ == "__main__":
    main()
