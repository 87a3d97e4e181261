"""What the costs of frequent and of rare labels in `sparse` are worth, alone and in the blend.

    python tests/bench/svm_costs.py CORPUS --work FOLDER [--costs 1,1 1,4 0.5,4] [--documents 2000]

Each row has a cost of labels with 10 training documents or more, and one of rarer labels. Half of
the dev split is ranked by a blend that is fitted on the other half. Differences of a document's
value from the first row of its scorer are given with their standard errors.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Float64
from machine import begin
from recording import Table, add_json_option, keep

from longtail.models.bundle.registry import Registry
from longtail.models.names import ENSEMBLE, SPARSE
from longtail.models.parts.model_parts import ModelParts
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.calibration.ensemble import fit_blending
from longtail.training.calibration.members import DevRanking
from longtail.training.calibration.scored_pairs import spread_rows
from longtail.training.configuration.run import TrainingConfig, read_config
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.data.survey import survey
from longtail.training.evaluation.metrics import document_values_at, join_truth, label_f1_at
from longtail.training.pipeline.dev_split import DevSplit
from longtail.training.pipeline.encoder_free import (
    fit_encoder_free,
    with_languages_decided,
    with_markup_decided,
)
from longtail.training.pipeline.train import Run, check_run, with_dev_split

RARE = 10
COMPARED = ("P@5", "nDCG@5", "PSP@5")


def read_corpus(path: Path, name: str | None, work: Path) -> tuple[Dataset, TrainingConfig]:
    """Return a corpus with a dev split, and the settings of a training on it."""
    config = read_config(name and Path(name)).without_encoder
    run = check_run(Run(config, open_dataset(path), work), Registry(work / "registry"))
    corpus = with_dev_split(run)
    found = survey(corpus.split("train"), 0)
    config = with_markup_decided(run.config, found.markup_share, path)
    names = (label.name for label in corpus.catalogue)
    return corpus, with_languages_decided(config, found.languages, names, path)


def dev_of(corpus: Dataset, config: TrainingConfig, work: Path, most: int) -> DevRanking:
    """Fit `sparse`; names and neighbours, too, unless the folder has them; score the dev split."""
    shutil.rmtree(work / "sparse", ignore_errors=True)
    found = fit_encoder_free(corpus, config, 0.0, work)
    parts = ModelParts(found.catalogue, found.sparse, None, found.models)
    dev = DevSplit.of(corpus, parts, found.truth.shape[0], work)._dev_ranking()
    rows = spread_rows(len(dev.pairs.labels), most)
    unseen = None if dev.unseen is None else dev.unseen.of_documents(rows)
    pairs, catalogue = dev.pairs.of_documents(rows), dev.catalogue
    return DevRanking.of(pairs, dev.truth[rows], catalogue, found.truth.shape[0], unseen)


def values_of(
    dev: DevRanking, scores: Float32[np.ndarray, "document m"]
) -> dict[str, Float64[np.ndarray, _]]:
    """Return P@1, P@5, nDCG@5 and PSP@5 of each document, and F1@5 of each rare label."""
    places = dev.best_places(scores, 5)
    labels = np.take_along_axis(dev.pairs.labels, places, axis=1)
    labels[np.isneginf(np.take_along_axis(scores, places, axis=1))] = NO_LABEL
    joined = join_truth(labels, dev.truth)
    counts = dev.catalogue.training_counts
    f1 = label_f1_at(joined, 5)[(counts > 0) & (counts < RARE)]
    first = {"P@1": document_values_at(joined, 1, dev.propensity_weights)["P@1"]}
    found = document_values_at(joined, 5, dev.propensity_weights)
    return first | found | {"macro-F1@5 (1-9)": f1}


def main() -> None:
    """Measure and print two rows for each pair of costs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--config", help="such as 'phrases'; its costs are replaced")
    parser.add_argument("--costs", nargs="+", default=["1,1", "1,2", "1,4", "0.5,2", "0.5,4"])
    parser.add_argument("--documents", type=int, default=6000, help="of dev, at most")
    add_json_option(parser)
    chosen = begin(parser)
    corpus, config = read_corpus(chosen.corpus, chosen.config, chosen.work)
    metrics = ("P@1", "P@5", "nDCG@5", "PSP@5", "macro-F1@5 (1-9)")
    errors = [x for name in COMPARED for x in (f"{name}: difference", f"{name}: error")]
    table = Table({"scorer": "", "costs": "", **dict.fromkeys([*metrics, *errors], ".2f")})
    first: dict[str, dict[str, Float64[np.ndarray, _]]] = {}
    for pair in chosen.costs:
        cost, rare_cost = map(float, pair.split(","))
        costs = config.sparse.model_copy(update={"cost": cost, "rare_cost": rare_cost})
        own = config.model_copy(update={"sparse": costs})
        dev = dev_of(corpus, own, chosen.work, chosen.documents)
        calibrations = fit_blending(dev, {}).calibrations
        blend = dev.cross_fitted(tuple(calibrations), calibrations)
        for scorer, scores in ((SPARSE, dev.pairs.scores[SPARSE]), (ENSEMBLE, blend)):
            values = values_of(dev, scores)
            steps = [values[x] - first.setdefault(scorer, values)[x] for x in COMPARED]
            spread = [x for step in steps for x in (step.mean(), step.std() / len(step) ** 0.5)]
            figures = [*(values[x].mean() for x in metrics), *spread]
            table.add(scorer, pair, *(100 * float(x) for x in figures))
    keep(chosen.json, {"costs": table}, seeds=[0])


if __name__ == "__main__":
    main()
