"""CPU of collecting what an evaluation needs against ranking the same documents by every scorer.

    python tests/bench/evaluate_cost.py REGISTRY DATA [--documents 600] [--rounds 3]

Both read the texts of the dev split in the batches of an evaluation and take turns; a figure is the
least of the rounds. `evaluate` computes its tables besides, once: "tables" is their part for each
document.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from machine import begin
from recording import Table, add_json_option, keep

from longtail.models.bundle.registry import Registry
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.training.assessment.assess import MAX_K
from longtail.training.assessment.truth import truth_of
from longtail.training.calibration.reliability import report_reliability
from longtail.training.calibration.scored_pairs import PairCollector
from longtail.training.data.chunks import chunks
from longtail.training.data.dataset import open_dataset
from longtail.training.evaluation.by_frequency import evaluate


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("registry", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--documents", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    add_json_option(parser)
    chosen = begin(parser)
    bundle = Registry(chosen.registry).open()
    predictor, dataset = Predictor.of_bundle(bundle), open_dataset(chosen.data)
    texts = list(islice(dataset.split("dev").texts(), chosen.documents))
    truth, _ = truth_of(predictor.catalogue, dataset, dataset.split("dev").scan().labels)
    truth = truth[: len(texts), : len(predictor.catalogue)]

    def rank() -> None:
        for batch in map(predictor.read, chunks(texts)):
            for name in predictor.scorers:
                predictor.rank(batch, RankingOptions(k=MAX_K, scorer=name))

    def collect() -> PairCollector:
        pairs = PairCollector(predictor, truth)
        for _ in pairs.watch(map(predictor.read, chunks(texts))):
            pass
        return pairs

    def report(found: PairCollector) -> None:
        counts = predictor.catalogue.training_counts
        report_reliability(predictor, found.pairs, bundle.manifest.thresholds, 0)
        num_training = bundle.manifest.training_document_count
        evaluate(found.rankings, truth, counts, num_training, [1, 3, 5, MAX_K])

    ranked, collected = [], []
    for _ in range(chosen.rounds):
        ranked.append(cpu_ms(rank) / len(texts))
        collected.append(cpu_ms(collect) / len(texts))
    found = collect()
    tables = cpu_ms(lambda: report(found)) / len(texts)
    table = Table({
        "labels": ",", "documents": ",", "ranking, ms": ".2f", "collecting, ms": ".2f",
        "tables, ms": ".2f", "evaluation / ranking": ".2f",
    })  # fmt: skip
    best, most = min(ranked), min(collected)
    ratio = (most + tables) / best
    table.add(len(predictor.catalogue), len(texts), best, most, tables, ratio)
    keep(chosen.json, {"evaluation": table})


def cpu_ms(work: Callable[[], object]) -> float:
    """Return the milliseconds of CPU that some work takes, all threads together."""
    started = time.process_time()
    work()
    return 1000 * (time.process_time() - started)


if __name__ == "__main__":
    main()
