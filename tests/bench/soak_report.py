"""The table and the picture of a soak, from its JSON.

    python tests/bench/soak_report.py docs/results/soak.json

Writes `soak.md` and `soak.png` beside it. A test checks that the committed table is what this
makes of the committed JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FIGURES = {
    "memory_mib": "resident memory, MiB",
    "descriptors": "open descriptors",
    "threads": "threads",
    "p50_ms": "single texts, p50, ms",
    "p99_ms": "single texts, p99, ms",
    "answers_a_second": "single texts answered a second",
}


def render(found: dict[str, Any]) -> str:
    """Return the page of a soak in Markdown."""
    minutes = found["seconds"] / 60
    total = sum(found["begun"].values())
    told = (
        f"`{found['command']}`, {found['date']}, commit {found['commit']}, {found['processor']}; "
        f"load generator on the same machine; {minutes:.0f} minutes, {total:,} requests."
    )
    lines = [
        "# Soak: full load with faults",
        "",
        "<!-- Made by tests/bench/soak_report.py from soak.json; change neither by hand. -->",
        "",
        told,
        *(["", found["note"]] if "note" in found else []),
        "",
        "![Memory, latency and throughput over time](soak.png)",
        "",
        "## What stays flat",
        "",
        "Medians of windows of ten seconds, in the second and in the last sixth of the time.",
        "",
        "| | second sixth | last sixth | ratio |",
        "|---|---:|---:|---:|",
    ]
    for name, title in FIGURES.items():
        early, late = found["early_and_late"][name]
        lines.append(f"| {title} | {early:.1f} | {late:.1f} | {late / early:.3f} |")
    lines += ["", "## Faults", "", "| fault | times |", "|---|---:|"]
    lines += [f"| {name} | {count:,} |" for name, count in found["faults"].items()]
    lines += [f"| swaps: {name} | {count:,} |" for name, count in found["swaps"].items()]
    lines += ["", "## Outcomes", "", "| requests | begun | outcomes |", "|---|---:|---|"]
    for kind, count in found["begun"].items():
        outcomes = found["outcomes"].get(kind, {})
        said = ", ".join(f"{status}: {times:,}" for status, times in sorted(outcomes.items()))
        lines.append(f"| {kind} | {count:,} | {said} |")
    readiness = "; ".join(f"{name}: {count:,}" for name, count in found["readiness"].items())
    failed = (
        f"Requests that failed within two seconds of a kill: {sum(found['excused'].values())};"
        f" others: {sum(found['failures'].values())}. What `/readyz` said and a plain request "
        f"found, asked each second: {readiness}."
    )
    lines += [
        "",
        failed,
        "",
        "## Bars",
        "",
        "| bar | met |",
        "|---|---|",
    ]
    lines += [f"| {name} | {'yes' if met else '**no**'} |" for name, met in found["bars"].items()]
    return "\n".join(lines) + "\n"


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw memory, p99 and throughput over time."""
    from matplotlib.figure import Figure

    minutes = [window["minute"] for window in found["windows"]]
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots(3, 1, sharex=True)
    shown = {
        "memory_mib": "memory (MiB)",
        "p99_ms": "p99 (ms)",
        "answers_a_second": "answers a second",
    }
    for axis, (name, title) in zip(axes, shown.items(), strict=True):
        axis.plot(minutes, [window[name] for window in found["windows"]], linewidth=1)
        axis.set_ylabel(title)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("minutes")
    axes[0].set_title("Full load with swaps, hostile requests and faults")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Render a soak's JSON."""
    path = Path(sys.argv[1])
    found = json.loads(path.read_text(encoding="utf-8"))
    path.with_suffix(".md").write_text(render(found), encoding="utf-8")
    draw(found, path.with_suffix(".png"))


if __name__ == "__main__":
    main()
