"""The picture of a soak, from its record; its tables are filled by `docs/render.py`.

    python tests/bench/soak_report.py docs/results/soak.json

Writes `soak.png` beside it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

SHOWN = {
    "memory_mib": "memory (MiB)",
    "p99_ms": "p99 (ms)",
    "answers_a_second": "answers a second",
}


def draw(windows: list[dict[str, Any]], path: Path) -> None:
    """Draw memory, p99 and throughput over time."""
    minutes = [window["minute"] for window in windows]
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots(3, 1, sharex=True)
    for axis, (name, title) in zip(axes, SHOWN.items(), strict=True):
        axis.plot(minutes, [float(window[name]) for window in windows], linewidth=1)
        axis.set_ylabel(title)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("minutes")
    axes[0].set_title("Full load with swaps, hostile requests and faults")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Draw the picture of a record."""
    path = Path(sys.argv[1])
    record = json.loads(path.read_text(encoding="utf-8"))
    draw(record["figures"]["windows"], path.with_suffix(".png"))


if __name__ == "__main__":
    main()
