"""Several seeds of one configuration on one corpus: means, spreads and intervals of its scorers.

    longtail train DATA/eurlex57k --config FULL_1 --registry R1 --work W1   # seed: 1, and so on
    longtail evaluate DATA/eurlex57k --registry R1 --predictions --output runs/eurlex/1
    python tests/bench/seeds.py DATA/eurlex57k --evaluated runs/eurlex/{0,1,2} \
        --json docs/results/seeds-eurlex57k.json

`seeds` has the mean of each scorer and its standard error over the seeds; `intervals` and
`differences`, of the default scorer, come from draws of seeds and documents both
(`research.experiments.bootstrap`), and are corrected for all differences of the table.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from evaluated_runs import prediction_files, seeds_of
from jaxtyping import Float64
from machine import begin
from recording import add_json_option, keep

from longtail.models.errors import DataError
from longtail.models.metrics import RankedEvaluation, inverse_propensities, join_truth
from longtail.training.assessment.compare import read_predictions
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.evaluation.by_frequency import (
    ALL_LABELS,
    TAIL_BIN,
    ZERO_SHOT_BIN,
    label_subsets,
    measure,
)
from research.experiments.blend import text_groups
from research.experiments.bootstrap import Draws, measured_on
from research.experiments.kept_draws import Drawn, interval_tables

SPLIT = "test"
REFERENCE = "ensemble"
MEASURES = (
    *((ALL_LABELS, metric) for metric in ("P@1", "P@3", "P@5", "RP@5", "nDCG@5")),
    *((ALL_LABELS, metric) for metric in ("PSP@1", "PSP@5", "R@10")),
    (TAIL_BIN, "macro-F1@5"),
    (ZERO_SHOT_BIN, "R@10"),
)
_WIDTH = max(int(metric.partition("@")[2]) for _, metric in MEASURES)


class Judge:
    """Measures the rankings of a corpus' test split."""

    def __init__(self, dataset: Dataset) -> None:
        self._truth = dataset.split(SPLIT).scan().labels
        self._counts = dataset.catalogue.training_counts
        self._num_training_documents = dataset.split("train").scan().labels.shape[0]
        self._groups = text_groups(dataset, SPLIT)
        subsets = label_subsets(self._counts)
        self._subsets = {name: subsets[name] for name in (TAIL_BIN, ZERO_SHOT_BIN)}

    def read(self, path: Path) -> RankedEvaluation:
        """Read a file of predictions.

        Raises:
            DataError: It is of another corpus, or has too few labels of a document.
        """
        ranking = read_predictions(path, *self._truth.shape)
        if ranking.labels.shape[1] < _WIDTH:
            raise DataError(f"{path}: {ranking.labels.shape[1]} labels a text; give {_WIDTH}")
        return join_truth(ranking.first(_WIDTH).labels, self._truth)

    def values(self, joined: RankedEvaluation) -> list[float]:
        """Return the measures, in percent."""
        ks = sorted({int(metric.partition("@")[2]) for _, metric in MEASURES})
        found = measure(joined, self._counts, self._num_training_documents, ks)
        return [100 * found[subset].values.get(metric, 0.0) for subset, metric in MEASURES]

    def drawn(self, by_seed: Sequence[RankedEvaluation]) -> Drawn:
        """Return metrics on draws of seeds and of documents, which are the same on every call."""
        weights = inverse_propensities(self._counts, self._num_training_documents)
        draws = Draws.of(self._groups, len(by_seed))
        return measured_on(draws, by_seed, weights, self._subsets)


def table_of(by_scorer: dict[str, Float64[np.ndarray, "seed measure"]]) -> dict[str, Any]:
    """Return means with standard errors over the seeds, the best scorer by P@5 first."""
    names = [f"{metric}" if subset == ALL_LABELS else f"{metric} ({subset})"
             for subset, metric in MEASURES]  # fmt: skip
    at_5 = names.index("P@5")
    rows = [
        [
            f"`{scorer}`",
            *(
                {"mean": float(each.mean()), "standard_error": float(standard_error(each))}
                for each in values.T
            ),
        ]
        for scorer, values in sorted(by_scorer.items(), key=lambda x: -x[1][:, at_5].mean())
    ]
    return {
        "columns": [{"name": "scorer"}, *({"name": x, "digits": 2} for x in names)],
        "rows": rows,
    }


def standard_error(values: Float64[np.ndarray, seed]) -> float:
    """Return that of the mean over seeds."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def main() -> None:
    """Measure all scorers that every run has predictions of."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "--evaluated", type=Path, nargs="+", required=True, help="folders of longtail evaluate"
    )
    parser.add_argument("--seeds", type=int, nargs="+", help="of these folders; else 0, 1, 2, ...")
    add_json_option(parser)
    options = begin(parser)
    seeds = seeds_of(options.evaluated, options.seeds)
    if len(seeds) < 2:
        parser.error("one folder, of one seed; give two or more")
    files = prediction_files(options.evaluated)
    if REFERENCE not in files:
        parser.error(f"not all folders have predictions of {REFERENCE}, the others' reference")
    judge = Judge(open_dataset(options.data))
    by_scorer, drawn = {}, {}
    for scorer, paths in files.items():
        joined = list(map(judge.read, paths))
        by_scorer[scorer] = np.array([judge.values(x) for x in joined])
        drawn[f"`{scorer}`"] = judge.drawn(joined)
        means = " ".join(f"{x:.2f}" for x in by_scorer[scorer].mean(axis=0))
        print(f"{scorer}: {means}", flush=True)
    by_precision = dict(sorted(drawn.items(), key=lambda x: -x[1]["P@5"][0]))
    tables = interval_tables(by_precision, f"`{REFERENCE}`", list(next(iter(drawn.values()))))
    keep(options.json, {"scorers": table_of(by_scorer)} | tables, seeds=seeds)


if __name__ == "__main__":
    main()
