"""A row of the leaderboard from a file of predictions, whichever program wrote it.

    python tests/bench/leaderboard/row.py DATA/eurlex57k --name "X-Transformer" \
        --test test.txt --dev dev.txt --command "..." --version "..." \
        --json docs/results/leaderboard/eurlex57k/x-transformer.json
    python docs/render.py

The files are in the score-matrix form that `longtail compare` reads: a header "N L", then for each
document of the split `label:score` pairs, labels numbered as the corpus lists them. Twenty labels a
document are enough. With `--dev`, the same of the dev split, the row has probabilities and
micro-F1 too. Costs are what `--training-seconds` and its like say: seconds of CPU, all cores added.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from columns import Judged, columns_of

from training.assessment.predictions import read_predictions
from training.data.dataset import Dataset, open_dataset
from training.data.held_out import with_held_out_dev
from training.evaluation.record import make_record, write_record

HELD_OUT_SHARE = 0.1
"""Of the training documents, where a corpus has no dev split: as `longtail train` does."""
COSTS = {
    "training_seconds": "CPU seconds to train what the row shows",
    "tuning_seconds": "CPU seconds of the whole search on dev",
    "memory_gib": "peak of resident memory, GiB",
    "milliseconds": "CPU milliseconds a text, from text to labels",
}


def main() -> None:
    """Write a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--name", required=True, help="what the row is called")
    parser.add_argument("--test", type=Path, required=True, help="predictions for the test split")
    parser.add_argument("--dev", type=Path, help="predictions for the dev split")
    parser.add_argument("--command", required=True, help="what made the predictions")
    parser.add_argument("--version", required=True, help="of the program, as it is installed")
    parser.add_argument("--settings", default="", help="what was tuned, and how")
    for name, meaning in COSTS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, help=meaning)
    parser.add_argument("--json", type=Path, required=True)
    chosen = parser.parse_args()
    costs = {name: getattr(chosen, name) for name in COSTS}
    about = {"name": chosen.name, "version": chosen.version, "settings": chosen.settings}
    write_row(
        chosen.json, open_dataset(chosen.data), chosen.test, chosen.dev,
        about=about, costs=costs, command=chosen.command,
    )  # fmt: skip


def name_of(data: Path) -> str:
    """Return the folder of a corpus as commands name it, wherever it lies on this machine."""
    return f"DATA/{data.name}" if data.is_absolute() else str(data)


def with_dev(dataset: Dataset) -> Dataset:
    """Return a corpus with a dev split: its own, or the one that `longtail train` holds out."""
    if "dev" in dataset.split_names:
        return dataset
    return with_held_out_dev(dataset, HELD_OUT_SHARE) or dataset


def write_row(
    path: Path,
    dataset: Dataset,
    test: Path,
    dev: Path | None,
    *,
    about: Mapping[str, Any],
    costs: Mapping[str, float | None],
    command: str | None = None,
    threshold: float | None = None,
) -> None:
    """Measure predictions and write the record of a row.

    Args:
        path: The record.
        dataset: The corpus, with a test split.
        test: Predictions of the test split.
        dev: Of the dev split; None: no probabilities are fitted.
        about: Name, version and settings.
        costs: By the names of `COSTS`.
        command: What made the predictions; None: this process.
        threshold: The probability that the method chose on dev for micro-F1, if it did.
    """
    judged = Judged.of(dataset, "test")
    ranked = None
    if dev is not None:
        truth = with_dev(dataset).split("dev").scan().labels
        ranked = read_predictions(dev, *truth.shape), truth
    found = columns_of(read_predictions(test, *judged.truth.shape), judged, ranked, threshold)
    figures = {**about, "data": dataset.fingerprint, "split": "test", "costs": costs, **found}
    write_record(path, make_record(figures, command=command, seeds=about.get("seeds", ())))
    values = found["bands"]["all"]
    print(f"{about['name']}: P@1 {100 * values['P@1']:.2f}, P@5 {100 * values['P@5']:.2f}: {path}")


if __name__ == "__main__":
    main()
