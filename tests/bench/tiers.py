"""What `ensemble` and `fast` of one model cost and reach, a row each in one table.

    python tests/bench/tiers.py REGISTRY CORPUS [--split test] [--texts titles|documents]

Quality is measured on the split in this process; then, for each scorer, a service of its own
answers one text a request: as many as it can (texts a second), and at half of that rate at random
times (p50 and p99). The load generator runs on the same machine and takes its share. Memory is that
of the service after its load; it holds the whole model, whatever it is asked for.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import torch
from load_generator import at_rate, predict_requests, run, saturate
from machine import begin
from recording import Table, add_json_option, keep
from served_process import served
from service_throughput import read_texts

from longtail.models.bundle.registry import Registry
from longtail.models.names import ENSEMBLE, FAST
from longtail.models.predict.predictor import Predictor
from longtail.training.assessment.assess import assess
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.evaluation.by_frequency import ALL_LABELS, TAIL_BIN

QUALITY = {
    "P@1": (ALL_LABELS, "P@1"),
    "P@5": (ALL_LABELS, "P@5"),
    "PSP@5": (ALL_LABELS, "PSP@5"),
    f"macro-F1@5 ({TAIL_BIN} documents)": (TAIL_BIN, "macro-F1@5"),
    "R@10 (no documents)": ("0", "R@10"),
    "R@10 (10-99 documents)": ("10-99", "R@10"),
    "R@10 (100+ documents)": ("100+", "R@10"),
}
"""The columns: of which labels, and which metric."""


def quality_of(
    predictor: Predictor, dataset: Dataset, split: str, num_training_documents: int
) -> Mapping[str, list[float | None]]:
    """Return the metrics of each scorer in percent, in the order of `QUALITY`."""
    evaluation = assess(
        predictor, dataset, split, num_training_documents=num_training_documents
    ).evaluation
    return {
        name: [
            None if (found := subsets[labels].values.get(metric)) is None else 100 * found
            for labels, metric in QUALITY.values()
        ]
        for name, subsets in evaluation.scorers.items()
    }


def main() -> None:
    """Measure and print a row for each scorer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--texts", choices=("titles", "documents"), default="documents")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=20)
    add_json_option(parser)
    chosen = begin(parser)

    bundle = Registry(chosen.registry).open()
    predictor = Predictor.of_bundle(bundle, device="cpu", num_threads=chosen.threads)
    dataset = open_dataset(chosen.corpus, known=bundle.catalogue)
    count = bundle.manifest.training_document_count
    quality = quality_of(predictor, dataset, chosen.split, count)
    del predictor
    forms = dict.fromkeys(QUALITY, ".2f")
    columns = {"scorer": "", **forms, "texts a second": ".0f", "p50, ms": ".1f", "p99, ms": ".1f"}
    table = Table({**columns, "memory, MiB": ".0f"})
    texts = read_texts(chosen.texts, 2000)
    options = ("--num-threads", str(chosen.threads), "--precision", chosen.precision)
    for scorer in (ENSEMBLE, FAST):
        if scorer not in quality:
            continue
        requests = predict_requests(texts, scorer=scorer)
        with served(chosen.registry, *options) as service:
            run(saturate(service.port, requests, chosen.connections, 2))  # warm
            full = run(saturate(service.port, requests, chosen.connections, chosen.seconds))
            half = run(at_rate(service.port, requests, full.rate / 2, chosen.seconds))
            assert set(full.statuses) == set(half.statuses) == {200}
            waits = [1000 * half.percentile(200, place) for place in (50, 99)]
            table.add(f"`{scorer}`", *quality[scorer], full.rate, *waits, service.memory_mib())
    keep(chosen.json, {"tiers": table})


if __name__ == "__main__":
    main()
