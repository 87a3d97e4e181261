"""Rankings of a split, measured by the language of the document and the frequency of the label.

    longtail evaluate DATA --registry R1 --split dev --predictions --no-baselines --output runs/1
    python tests/bench/by_language.py DATA --split dev --evaluated none=runs/1 english=runs/2 \
        --scorers retrieval,fast,ensemble --json docs/results/FILE.json

Of each language P@1, P@5 and nDCG@5 over all labels and R@10 of the labels of each band. The
language is told as in training (`longtail.training.data.languages`); "all" has all documents.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from machine import begin
from recording import Table, add_json_option, keep

from longtail.training.assessment.predictions import PREDICTIONS_NAME, read_predictions
from longtail.training.data.dataset import open_dataset
from longtail.training.data.languages import LanguageCount, language_of
from longtail.training.evaluation.by_frequency import ALL_LABELS, FREQUENCY_BINS, measure
from longtail.training.evaluation.metrics import join_truth

_OVERALL = ("P@1", "P@5", "nDCG@5", "R@10")
_K = 10


def main() -> None:
    """Measure the scorers of all evaluations that are given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--evaluated", nargs="+", required=True, metavar="NAME=FOLDER")
    parser.add_argument("--scorers", default="retrieval,fast,ensemble")
    add_json_option(parser)
    options = begin(parser)
    dataset = open_dataset(options.data)
    split = dataset.split(options.split)
    truth = split.scan().labels
    told = np.array([language_of(text) for text in split.texts()])
    languages = [ALL_LABELS, *LanguageCount.of(split.texts()).languages]
    num_training_documents = dataset.split("train").scan().labels.shape[0]
    counts = dataset.catalogue.training_counts
    bands = {f"R@10 ({band})": ".2f" for band in FREQUENCY_BINS}
    table = Table(
        {"texts": "", "documents": "", "model": "", "scorer": ""}
        | dict.fromkeys(_OVERALL, ".2f") | bands
    )  # fmt: skip
    for language in languages:
        rows = np.flatnonzero((told == language) | (language == ALL_LABELS))
        for name, _, folder in (each.partition("=") for each in options.evaluated):
            for scorer in options.scorers.split(","):
                path = Path(folder) / PREDICTIONS_NAME / f"{scorer}.txt"
                if not path.exists():
                    continue
                ranking = read_predictions(path, *truth.shape)
                joined = join_truth(ranking.labels[rows][:, :_K], truth[rows])
                found = measure(joined, counts, num_training_documents, (1, 5, _K))
                values = [found[ALL_LABELS].values[metric] for metric in _OVERALL]
                values += [found[band].values.get("R@10", np.nan) for band in FREQUENCY_BINS]
                cells = (None if np.isnan(x) else 100 * x for x in values)
                table.add(language, len(rows), name, f"`{scorer}`", *cells)
    keep(options.json, {options.split: table}, seeds=[57])


if __name__ == "__main__":
    main()
