"""A row of the leaderboard from a file of predictions, whichever program wrote it.

    python tests/bench/leaderboard/row.py DATA/eurlex57k --name "X-Transformer" \
        --test test.npz --dev dev.npz --command "..." --version "..."
    python docs/render.py

The files are rankings as `longtail compare` reads them: `.npz` with arrays `labels` (a row for each
document of the split, label numbers as the corpus lists them, the best first, -1 behind the last),
`scores` of the same shape, and `num_labels`. Twenty labels a document are enough, ten are needed.
With `--dev`, the same of the dev split, the row has
probabilities and micro-F1 too. Costs are what `--training-seconds` and its like say: seconds of
CPU, all cores added. The row is written to `docs/results/leaderboard.json` in place of the one of
this corpus, which is known by the name of its folder, and of this name.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from board import key_of, put_row, read_rows
from columns import KS, Judged, columns_of

from longtail.models.errors import ConfigError, DataError, LongtailError
from longtail.models.metrics import join_truth, precision_at
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.training.assessment.compare import read_predictions
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.data.held_out import with_held_out_dev
from longtail.training.evaluation.record import make_record

BOARD = Path(__file__).parents[3] / "docs" / "results" / "leaderboard.json"
HELD_OUT_SHARE = 0.1
"""Share of training documents held out where a corpus has no dev split."""
_LONGEST = {"name": 80, "version": 200, "settings": 500, "command": 1000}
_MOST_OUTSIDE = 0.5
COSTS = {
    "training_seconds": "CPU seconds to train what the row shows",
    "tuning_seconds": "CPU seconds of the whole search on dev",
    "memory_gib": "peak of resident memory, GiB",
    "milliseconds": "CPU milliseconds a text, from text to labels",
    "training_wall_seconds": "seconds by the clock",
    "title_milliseconds": "CPU milliseconds of a title alone",
    "document_milliseconds": "CPU milliseconds of a document alone",
    "bundle_mib": "files of the model, MiB",
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
    parser.add_argument("--json", type=Path, default=BOARD, help="the leaderboard's file")
    chosen = parser.parse_args()
    costs = {name: getattr(chosen, name) for name in COSTS}
    about = {"name": chosen.name, "version": chosen.version, "settings": chosen.settings}
    try:
        write_row(
            chosen.json, open_dataset(chosen.data), chosen.test, chosen.dev,
            about=about, costs=costs, command=chosen.command,
        )  # fmt: skip
    except LongtailError as error:
        sys.exit(f"Error: {error}")


def name_of(data: Path) -> str:
    """Return the folder of a corpus as commands name it, wherever it lies on this machine."""
    place, root = data.resolve(), BOARD.parents[2]
    return str(place.relative_to(root)) if place.is_relative_to(root) else f"DATA/{place.name}"


def with_dev(dataset: Dataset) -> Dataset:
    """Return a corpus with a dev split: its own, or the one that `longtail train` holds out."""
    return with_held_out_dev(dataset, HELD_OUT_SHARE)


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
    """Measure predictions and write the row.

    Args:
        path: The leaderboard's file.
        dataset: The corpus, with a test split.
        test: Predictions of the test split.
        dev: Ranking of the dev split; None: no probabilities are fitted.
        about: Name, version and settings.
        costs: By the names of `COSTS`.
        command: What made the predictions; None: this process.
        threshold: The probability that the method chose on dev for micro-F1, if it did.

    Raises:
        ConfigError: What is said of the row can't be in a table, or the set is another corpus.
        DataError: Predictions are of other documents, too few, or dev's on another scale.
    """
    check_words({**about, "command": command})
    check_costs(costs)
    key = dataset.folder.name, about["name"]
    if "of" not in about and any("of" in x["figures"] for x in read_rows(path) if key_of(x) == key):
        raise ConfigError(
            f"{path}: {about['name']!r} is a row of Longtail, which evidence.py writes; give "
            "another --name"
        )
    judged = Judged.of(dataset, "test")
    ranking = ranking_of(test, judged.truth)
    ranked = None
    if dev is not None:
        truth = with_dev(dataset).split("dev").scan().labels
        ranked = ranking_of(dev, truth), truth
        check_scale(test, ranking, dev, ranked[0])
    found = columns_of(ranking, judged, ranked, threshold)
    figures = {**about, "data": dataset.fingerprint, "split": "test", "costs": costs, **found}
    record = make_record(figures, command=command, seeds=about.get("seeds", ()))
    put_row(path, {"set": dataset.folder.name, **record})
    values = found["bands"]["all"]
    print(f"{about['name']}: P@1 {100 * values['P@1']:.2f}, P@5 {100 * values['P@5']:.2f}: {path}")


def ranking_of(path: Path, truth: Any) -> Ranking:
    """Read predictions, and tell how good they are and of how many documents there are none.

    Raises:
        DataError: They are of other documents or labels, fewer than ten labels wide, or have a
            score that is no number.
    """
    ranking = read_predictions(path, *truth.shape)
    is_wrong = (ranking.labels != NO_LABEL) & ~np.isfinite(ranking.scores)
    if is_wrong.any():
        row, place = np.argwhere(is_wrong)[0].tolist()
        raise DataError(
            f"{path}: document {row} has the score {ranking.scores[row, place]} at place {place}; "
            "expected a finite number for every label"
        )
    if ranking.labels.shape[1] < max(KS):
        raise DataError(
            f"{path}: at most {ranking.labels.shape[1]} labels a document; expected {max(KS)} or "
            "more, for R@10"
        )
    num_empty = int((ranking.labels[:, 0] == NO_LABEL).sum())
    precision = 100 * precision_at(join_truth(ranking.first(max(KS)).labels, truth), 1)
    empty = f"; {num_empty} documents have no label" if num_empty else ""
    print(f"{path}: {len(ranking.labels)} documents, P@1 {precision:.2f}{empty}")
    return ranking


def check_words(words: Mapping[str, Any]) -> None:
    """Refuse what would break a table: nothing, several lines, too much, or a comment's beginning.

    Raises:
        ConfigError: Something does.
    """
    for name, most in _LONGEST.items():
        text = words.get(name)
        if text is None or (name == "settings" and not text):
            continue
        if not text.strip() or len(text) > most or not text.isprintable() or "<!--" in text:
            raise ConfigError(
                f"--{name}: got {text[:60]!r}, expected one line of 1 to {most} characters "
                "without '<!--'"
            )


def check_costs(costs: Mapping[str, float | None]) -> None:
    """Refuse costs that are no numbers from 0 on.

    Raises:
        ConfigError: One is none.
    """
    for name, value in costs.items():
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise ConfigError(
                f"--{name.replace('_', '-')}: got {value}, expected a number of at least 0"
            )


def check_scale(test: Path, ranking: Ranking, dev: Path, on_dev: Ranking) -> None:
    """Refuse predictions most of whose scores are outside of all that dev has.

    Raises:
        DataError: They are.
    """
    scores, known = (x.scores[x.labels != NO_LABEL] for x in (ranking, on_dev))
    share = float(np.mean((scores < known.min()) | (scores > known.max())))
    if share > _MOST_OUTSIDE:
        raise DataError(
            f"{test}: {share:.0%} of the scores are outside of {known.min():.3g} to "
            f"{known.max():.3g}, which all scores of {dev} are within; give both from one model"
        )


if __name__ == "__main__":
    main()
