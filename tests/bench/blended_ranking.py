"""Two ways to the exact top k of a blend of scorers: how long each takes, and who scores how much.

    OMP_NUM_THREADS=1 python tests/bench/blended_ranking.py
    OMP_NUM_THREADS=1 python tests/bench/blended_ranking.py --registry REGISTRY --data CORPUS

By default two made-up scorers of 384 dimensions that agree about as much as real ones do (their
best ten have some five labels in common), over several numbers of labels. With a registry, the
blends of a published model on the texts of a dev split.

"certified" is the Threshold Algorithm, "all" scores all labels; they give the same labels. "plain"
is what is compared with: each scorer's own top k, one after the other; "dearest" is the one of them
that takes longest. What is read of the texts beforehand (features, vectors, names, neighbours)
counts for none of them. Times are the process's own (CPU), the least of several rounds in which all
take turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from machine import begin
from recording import add_json_option, keep

from longtail.models.bundle.registry import Registry
from longtail.models.names import ENSEMBLE, FAST, HYBRID
from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.index import InnerProductIndex, InnerProductSource
from longtail.models.ranking.threshold_algorithm import SUM, Sources, rank
from longtail.models.ranking.top_k import Ranking
from longtail.models.scorers.blending import Blend, DialledBlend, MeanBlend
from longtail.training.data.dataset import open_dataset
from longtail.training.evaluation.record import markdown_table

DIM = 384
NUM_QUERIES = 64
BATCH_SIZES = (1, 64)
K = 10
ROUNDS = 5
HEADER = [
    "labels",
    "blend",
    "batch",
    "labels scored",
    "certified",
    "all",
    "plain",
    "dearest",
    "certified / all",
    "certified / dearest",
]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--registry", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--labels", type=int, nargs="+", default=[1000, 4000, 16_000, 100_000])
    add_json_option(parser)
    asked = begin(parser)
    torch.set_num_threads(1)
    if asked.registry is None:
        rows = [row for num_labels in asked.labels for row in made_up(num_labels)]
    else:
        rows = published(asked.registry, asked.data)
    print("Milliseconds of CPU for a batch.\n")
    print(markdown_table(HEADER, rows))
    keep(asked.json, {"batches": [dict(zip(HEADER, row, strict=True)) for row in rows]}, seeds=[0])


def made_up(num_labels: int) -> list[list[str]]:
    """Measure two correlated scorers."""
    rng = np.random.default_rng(0)
    first = rng.normal(size=(num_labels, DIM)).astype(np.float32)
    second = first + rng.normal(scale=0.5, size=first.shape).astype(np.float32)
    near = rng.integers(num_labels, size=NUM_QUERIES)
    queries = first[near] + rng.normal(scale=3, size=(NUM_QUERIES, DIM)).astype(np.float32)
    labels = np.arange(num_labels)
    indexes = [InnerProductIndex(x / np.float32(40), labels, device="cpu") for x in (first, second)]
    log_priors = np.full(num_labels, -np.log(num_labels), dtype=np.float32)
    blend = MeanBlend(("first", "second"), log_priors)
    sources: dict[int, list[Sources]] = {
        size: [[InnerProductSource(index, queries[:size])] for index in indexes]
        for size in BATCH_SIZES
    }
    return [measured(num_labels, HYBRID, size, blend, some) for size, some in sources.items()]


def published(registry: Path, data: Path) -> list[list[str]]:
    """Measure the blends of a model."""
    predictor = Predictor.of_bundle(Registry(registry).open("current"), device="cpu")
    texts = list(islice(open_dataset(data).split("dev").texts(), NUM_QUERIES))
    batch = predictor.read(texts)
    rows = []
    for name in (x for x in (HYBRID, FAST, ENSEMBLE) if x in predictor.scorers.names):
        scorers = predictor.scorers  # a bench may look inside
        blend = scorers._blends[name]
        for size in BATCH_SIZES:
            some = batch.take(range(size))
            assert isinstance(some, TextBatch)
            predictor.rank(some, RankingOptions(1, name))  # compiles, and reads the texts
            sources, _ = scorers._scored(some, scorers.resolve(RankingOptions(scorer=name)))
            rows.append(measured(len(predictor.catalogue), name, size, blend, sources))
    return rows


def measured(
    num_labels: int, name: str, size: int, blend: Blend, sources: list[Sources]
) -> list[str]:
    """Return a row of the table."""

    def plain() -> Ranking:
        rows = np.arange(size)
        return [source.top(rows, K) for parts in sources for source in parts][-1]

    def by(most: int) -> Callable[[], Ranking]:
        def ranked() -> Ranking:
            with mock.patch("longtail.models.ranking.top_k._ALWAYS_UP_TO", most):
                return rank(sources, DialledBlend.of(blend, 0.0), K, num_labels)

        return ranked

    def own(parts: Sources) -> Callable[[], Ranking]:
        def ranked() -> Ranking:
            with mock.patch("longtail.models.ranking.top_k._ALWAYS_UP_TO", 0):
                return rank([parts], SUM, K, num_labels)

        return ranked

    ways = {"certified": by(0), "all": by(num_labels), "plain": plain}
    members = {f"member {number}": own(parts) for number, parts in enumerate(sources)}
    ways |= members
    found = [ways[name]() for name in ("certified", "all")]
    np.testing.assert_array_equal(found[0].labels, found[1].labels)
    np.testing.assert_array_equal(found[0].scores, found[1].scores)
    least = dict.fromkeys(ways, np.inf)
    for _ in range(ROUNDS):
        for way, run in ways.items():
            started = time.process_time()
            run()
            least[way] = min(least[way], 1000 * (time.process_time() - started))
    with mock.patch.object(blend, "log_odds", wraps=blend.log_odds) as blended:
        ways["certified"]()
        shapes = [call.args[0].shape for call in blended.call_args_list]
    scored = sum(rows * width for _, rows, width in shapes) / size
    least["dearest"] = max(least.pop(way) for way in members)
    cells = [f"{value:.2f}" for value in least.values()]
    ratios = [f"{least['certified'] / least[way]:.2f}" for way in ("all", "dearest")]
    return [f"{num_labels:,}", name, str(size), f"{scored:,.0f}", *cells, *ratios]


if __name__ == "__main__":
    main()
