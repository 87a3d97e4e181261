"""Are probabilities true in every band of rarity? The best labels of each document of a split.

`before` is the probability by one curve for all labels, `after` that of the answers, which knows
how often a label was seen. `chance` is the ECE that probabilities as after would have if they were
true, with so many labels: the mean of draws. An ECE can hardly lie below it.

    python -m tests.bench.band_probabilities REGISTRY=DATA ... [--best 5] [--most 6000] [--json F]

With `--refit` what knows how often a label was seen is fitted on the dev split first, as training
does: for models of releases before it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from longtail.models.bundle.registry import Registry
from longtail.models.corpus.columns import RECOGNISED
from longtail.models.kinds.storage import read_parts
from longtail.models.predict.predictor import Predictor
from longtail.training.assessment.assess import split_batches
from longtail.training.assessment.truth import truth_of
from longtail.training.assessment.untrained import open_as_trained
from longtail.training.calibration.ensemble import with_rarity
from longtail.training.calibration.reliability import best_labels, calibration_error
from longtail.training.calibration.scored_pairs import PairCollector, ScoredPairs, spread_rows
from longtail.training.evaluation.by_frequency import FREQUENCY_BINS, label_subsets
from longtail.training.evaluation.record import deliver, markdown_table

_DRAWS = 200
OF_ALL = {"counts": (0,), "shifts": (0.0,), "factors": (1.0,)}
"""Rarity fields of a calibration that treats all labels alike."""
_NAMES = ("corpus", "training documents", "labels", "right")
_MEASURED = ("said before", "said after", "ECE before", "ECE after", "chance")


def scored(registry: Path, data: Path, split: str, most: int) -> tuple[Predictor, ScoredPairs]:
    """Return a model, and scored pairs of at most so many documents that it was not trained on."""
    bundle = Registry(registry).open()
    dataset = open_as_trained(data, RECOGNISED, [bundle], bundle.catalogue)
    is_used = np.zeros(dataset.split(split).scan().labels.shape[0], dtype=bool)
    is_used[spread_rows(len(is_used), most)] = True
    dataset = dataset.with_splits({split: dataset.split(split).part(is_used)})
    predictor = Predictor(read_parts(bundle), default_scorer=bundle.manifest.default_scorer)
    truth, _ = truth_of(bundle.catalogue, dataset, dataset.split(split).scan().labels)
    collector = PairCollector(predictor, truth[:, : len(predictor.catalogue)])
    for _ in collector.watch(split_batches(predictor, dataset, split, truth.shape[0])):
        pass
    return predictor, collector.pairs


def chance(probabilities: np.ndarray, rng: np.random.Generator) -> float:
    """Return the mean ECE of labels that are right as often as these probabilities say."""
    drawn = (rng.random(len(probabilities)) < probabilities for _ in range(_DRAWS))
    return float(np.mean([calibration_error(probabilities, is_true) for is_true in drawn]))


def main(
    models: list[str],
    split: str = "test",
    best: int = 5,
    most: int = 6000,
    scorer: str | None = None,
    refit: bool = False,
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
) -> None:
    """Print a row for each corpus and band, in percent."""
    rows, rng = list[list[object]](), np.random.default_rng(0)
    for registry, data in (each.split("=") for each in models):
        predictor, pairs = scored(Path(registry), Path(data), split, most)
        name = scorer or predictor.scorers.default
        known = predictor.parts.calibrations[name]
        if refit:
            _, dev = scored(Path(registry), Path(data), "dev", 6000)
            known = with_rarity(dev, name, replace(known, **OF_ALL))
        labels, after, is_true = best_labels(pairs, name, known, best)
        _, before, _ = best_labels(pairs, name, replace(known, **OF_ALL), best)
        subsets = label_subsets(predictor.catalogue.training_counts)
        for band in FREQUENCY_BINS:
            is_in = subsets[band][labels]
            old, new, right = before[is_in], after[is_in], is_true[is_in]
            if not len(right):
                continue
            shares = [
                right.mean(), old.mean(), new.mean(), calibration_error(old, right),
                calibration_error(new, right), chance(new, rng),
            ]  # fmt: skip
            rows.append([Path(data).name, band, len(right), *(round(100 * x, 2) for x in shares)])
    columns = [{"name": x} for x in _NAMES[:3]]
    columns += [{"name": x, "digits": 1} for x in (_NAMES[3], *_MEASURED)]
    cells = [[str(cell) for cell in row] for row in rows]
    figures = {"split": split, "best": best, "bands": {"columns": columns, "rows": rows}}
    print(deliver(json_file, figures, markdown_table([*_NAMES, *_MEASURED], cells), seeds=[0]))


if __name__ == "__main__":
    typer.run(main)
