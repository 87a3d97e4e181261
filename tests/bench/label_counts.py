"""How many labels a text needs: the threshold "auto" beside one threshold and one number for all.

All three are fitted on dev for micro-F1, as training does, and measured on another split; or with
`--draws 20`, fitted on random halves of dev and measured on the other halves.

    python -m tests.bench.label_counts REGISTRY DATA [--split test] [--draws 20] [--json FILE]
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from scipy.special import expit, logit

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.registry import Registry
from longtail.models.corpus.columns import RECOGNISED
from longtail.models.options import AUTO_K
from longtail.models.scorers.calibration import IDENTITY
from longtail.training.assessment.promised import answer_split
from longtail.training.assessment.untrained import open_as_trained
from longtail.training.calibration.scored_pairs import ScoredPairs
from longtail.training.calibration.thresholds import best_label_count, best_threshold
from longtail.training.data.dataset import Dataset
from longtail.training.evaluation.record import deliver, markdown_table
from longtail.training.fitted.fitting import AnsweredDocuments
from tests.bench.band_probabilities import OF_ALL
from tests.bench.promise import of_documents

AUTO, THRESHOLD, NUMBER = "auto", "one threshold", "one number"


def pairs_of(documents: AnsweredDocuments) -> ScoredPairs:
    """Return answered labels as scored pairs, with missed true ones that nothing can score."""
    labels = documents.labels
    num_missed = documents.num_true - documents.is_right.sum(axis=1)
    is_missed = np.arange(num_missed.max()) < num_missed[:, None]
    is_there = np.hstack([labels >= 0, is_missed])
    log_odds = logit(np.clip(documents.probabilities, 1e-12, 1 - 1e-12))
    scores = np.where(labels >= 0, log_odds, -np.inf)
    return ScoredPairs(
        labels=np.hstack([labels, np.zeros(is_missed.shape, dtype=np.int64)]),
        is_true=np.hstack([documents.is_right, is_missed]),
        is_best=is_there,
        weights=is_there.astype(np.float32),
        scores={"": np.pad(scores, ((0, 0), (0, is_missed.shape[1])), constant_values=-np.inf)},
        counts=np.zeros(is_there.shape, dtype=np.int64),
    )


def answered(bundle: Bundle, dataset: Dataset, split: str, scorer: str) -> AnsweredDocuments:
    """Return what a model answers, with probabilities by which its labels stand in order."""
    known = {x: replace(y, **OF_ALL) for x, y in bundle.manifest.calibrations.items()}
    plain = replace(bundle, manifest=replace(bundle.manifest, calibrations=known))
    return answer_split(plain, dataset, split, scorer)


def measured(documents: AnsweredDocuments, is_answered: np.ndarray) -> list[float]:
    """Return micro-F1, the mean F1 of documents with labels, in percent, and labels a document."""
    right = (is_answered & documents.is_right).sum(axis=1)
    sizes = is_answered.sum(axis=1) + documents.num_true
    has_labels = documents.num_true > 0
    return [
        float(200 * right.sum() / sizes.sum()),
        float(200 * (right[has_labels] / sizes[has_labels]).mean()),
        float(is_answered.sum(axis=1).mean()),
    ]


def first(documents: AnsweredDocuments, k: int) -> np.ndarray:
    """Return which labels are the k best ones of their document."""
    return (documents.labels >= 0) & (np.arange(documents.labels.shape[1]) < k)


def compared(dev: AnsweredDocuments, others: AnsweredDocuments) -> dict[str, list[float]]:
    """Return what each way of choosing labels reaches on others."""
    pairs = pairs_of(dev)
    rule, one = best_label_count(pairs, "", IDENTITY), best_threshold(pairs, "", IDENTITY)
    assert rule is not None and one is not None
    best_k = max(range(1, 51), key=lambda k: measured(dev, first(dev, k))[0])
    places = np.arange(1, 1 + others.labels.shape[1])
    is_near, shares = first(others, AUTO_K), others.probabilities
    return {
        AUTO: measured(
            others, is_near & (shares >= expit(rule.first + rule.rise * np.log(places)))
        ),
        THRESHOLD: measured(others, is_near & (shares >= one)),
        NUMBER: measured(others, first(others, best_k)),
    }


def main(
    registry: Path,
    data: Path,
    split: str = "test",
    version: str = "current",
    draws: int = 0,
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
) -> None:
    """Print what each way of choosing labels reaches; of draws the means, and how often it wins."""
    bundle = Registry(registry).open(version)
    dataset = open_as_trained(data, RECOGNISED, [bundle], bundle.catalogue)
    scorer = bundle.manifest.default_scorer
    dev = answered(bundle, dataset, "dev", scorer)
    if draws:
        rng, size = np.random.default_rng(0), len(dev.labels)
        halves = [np.split(rng.permutation(size), [size // 2]) for _ in range(draws)]
        found = [compared(*(of_documents(dev, rows) for rows in both)) for both in halves]
        split = "dev"
    else:
        found = [compared(dev, answered(bundle, dataset, split, scorer))]
    names = ["choice", "micro-F1", "document F1", "labels"]
    rows = [[x, *np.mean([each[x] for each in found], axis=0).round(2).tolist()] for x in found[0]]
    gains = [each[AUTO][0] - each[THRESHOLD][0] for each in found]
    table = {"columns": [{"name": name, "digits": 2} for name in names], "rows": rows}
    figures = {
        "model": bundle.manifest.digest, "data": dataset.fingerprint, "split": split,
        "scorer": scorer, "documents": len(dev.labels), "draws": draws, "choices": table,
        "gain_in_micro_f1": gains,
    }  # fmt: skip
    text = markdown_table(names, [[str(cell) for cell in row] for row in rows])
    text += (
        f"\n\nauto gains {np.mean(gains):.2f}, at least 0 in {np.mean(np.array(gains) >= 0):.0%}"
    )
    print(deliver(json_file, figures, text, seeds=[0]))


if __name__ == "__main__":
    typer.run(main)
