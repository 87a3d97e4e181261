"""Models without and with an encoder, by the language of the text and the frequency of the label.

    python tests/bench/by_language.py DATA --split dev --models none=R1 english=R2 \
        --scorers retrieval,ensemble --json docs/results/FILE.json

Of each language P@1, P@5, nDCG@5 and R@10 over all labels, and R@10 of the labels of each band. It
is told as in training (`longtail.training.data.languages`); "all" has all documents.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from machine import begin
from recording import Table, add_json_option, keep

from longtail.models.bundle.registry import Registry
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import Ranking
from longtail.training.assessment.assess import split_batches
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.data.languages import LanguageCount, language_of
from longtail.training.data.overlap import with_splits_apart
from longtail.training.evaluation.by_frequency import ALL_LABELS, FREQUENCY_BINS, measure
from longtail.training.evaluation.metrics import join_truth

_OVERALL = ("P@1", "P@5", "nDCG@5", "R@10")
_K = 10


def ranked(registry: Path, dataset: Dataset, split: str, scorers: list[str]) -> dict[str, Ranking]:
    """Return the rankings of a split by those of some scorers that a model has."""
    predictor = Predictor.of_bundle(Registry(registry).open("current"))
    found: dict[str, list[Ranking]] = {x: [] for x in scorers if x in predictor.scorers}
    for batch in split_batches(predictor, dataset, split, len(list(dataset.split(split).texts()))):
        for scorer, parts in found.items():
            parts.append(predictor.rank(batch, RankingOptions(scorer=scorer, k=_K)))
    return {scorer: Ranking.joined(parts) for scorer, parts in found.items()}


def main() -> None:
    """Rank the split with all models, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--models", nargs="+", required=True, metavar="NAME=REGISTRY")
    parser.add_argument("--scorers", default="retrieval,ensemble")
    add_json_option(parser)
    options = begin(parser)
    dataset = with_splits_apart(open_dataset(options.data))
    split, counts = dataset.split(options.split), dataset.catalogue.training_counts
    truth, texts = split.scan().labels, list(split.texts())
    told = np.array([language_of(text) for text in texts])
    num_training_documents = dataset.split("train").scan().labels.shape[0]
    models = [each.partition("=")[::2] for each in options.models]
    scorers = options.scorers.split(",")
    rankings = {name: ranked(Path(x), dataset, options.split, scorers) for name, x in models}
    table = Table(
        {"texts": "", "documents": "", "encoder": "", "scorer": ""}
        | dict.fromkeys(_OVERALL, ".2f") | {f"R@10 ({band})": ".2f" for band in FREQUENCY_BINS}
    )  # fmt: skip
    for language in (ALL_LABELS, *LanguageCount.of(texts).languages):
        rows = np.flatnonzero((told == language) | (language == ALL_LABELS))
        for name, of_scorers in rankings.items():
            for scorer, ranking in of_scorers.items():
                joined = join_truth(ranking.labels[rows], truth[rows])
                found = measure(joined, counts, num_training_documents, (1, 5, _K))
                values = [found[ALL_LABELS].values[metric] for metric in _OVERALL]
                values += [found[band].values["R@10"] for band in FREQUENCY_BINS]
                table.add(language, len(rows), name, f"`{scorer}`", *(100 * x for x in values))
    keep(options.json, {options.split: table})


if __name__ == "__main__":
    main()
