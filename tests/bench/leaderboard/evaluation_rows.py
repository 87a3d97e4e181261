"""Rows of the leaderboard from a record of `longtail evaluate --json`, which measures the same.

    longtail evaluate DATA/tate --json docs/results/blend-tate.json
    python tests/bench/leaderboard/evaluation_rows.py docs/results/blend-tate.json \
        --title "Longtail, no encoder" --json docs/results/leaderboard/tate/longtail.json

A row a scorer. What `evaluate` doesn't measure (intervals over documents, costs) stays empty; the
scorers' probabilities are those that the bundle fitted on dev.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from columns import BANDS
from row import COSTS

from longtail.training.evaluation.record import write_record

_BASELINES = {"30-NN tf-idf": "nearest neighbours", "label names": "label names"}


def main() -> None:
    """Write the rows of a record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("--title", required=True, help="of the rows, before the scorer's name")
    parser.add_argument("--json", type=Path, required=True, help="-SCORER stands behind its name")
    chosen = parser.parse_args()
    record = json.loads(chosen.record.read_text(encoding="utf-8"))
    for scorer in record["figures"]["scorers"]:
        path = chosen.json.with_stem(f"{chosen.json.stem}-{scorer}")
        if scorer in _BASELINES:
            path = chosen.json.with_stem(_BASELINES[scorer].replace(" ", "-"))
        write_record(path, {**record, "figures": figures_of(record, scorer, chosen.title)})


def figures_of(record: Mapping[str, Any], scorer: str, title: str) -> dict[str, Any]:
    """Return the figures of a scorer's row."""
    figures = record["figures"]
    subsets, trusted = figures["scorers"][scorer], figures.get("probabilities", {})
    after = trusted.get("after", {}).get(scorer)
    answered = trusted.get("micro_f1", {}).get(scorer)
    return {
        "name": _BASELINES.get(scorer, f"{title}: {scorer}"),
        "version": "longtail 0.1.0",
        "settings": "" if scorer in _BASELINES else "chosen on dev by the run",
        "data": figures["data"],
        "split": figures["split"],
        "costs": dict.fromkeys(COSTS),
        "bands": {name: subsets[name]["values"] for name in BANDS},
        "documents": {name: subsets[name]["num_documents"] for name in BANDS},
        "hierarchical": figures.get("hierarchical", {}).get(scorer),
        "intervals": None,
        "probabilities": {
            "ECE@5": None if after is None else after["top_calibration_error"],
            "ECE@5, fitted on dev": None,
            "micro-F1": None if answered is None else answered["micro_f1"],
        },
    }


if __name__ == "__main__":
    main()
