"""What bfloat16 gains and costs: speed and ranking against float32, in one run.

    python tests/bench/service_precision.py REGISTRY DATA [--texts 400] [--rounds 3]

DATA is a corpus with a dev split. Both precisions encode the same texts in turn; the ratio is that
of their best rounds. Ranking: P@1, P@3 and P@5 on the dev split, and how many of the five best
labels are the same.
"""

from __future__ import annotations

import argparse
import time
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from models.encoder import Precision
from models.predictor import Predictor
from models.registry import Registry
from training.corpus import open_dataset

DEPTHS = (1, 3, 5)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    chosen = parser.parse_args()

    dataset = open_dataset(chosen.data)
    documents = list(islice(dataset.split("dev"), chosen.texts))
    texts = [document.text for document in documents]
    truths = [{dataset.catalogue[i].id for i in document.labels} for document in documents]
    precisions: tuple[Precision, ...] = ("float32", "bfloat16")
    predictors = {
        name: Predictor.of_bundle(
            Registry(chosen.registry).open(), num_threads=chosen.threads, precision=name
        )
        for name in precisions
    }
    best: dict[str, float] = dict.fromkeys(precisions, 0.0)
    for _ in range(chosen.rounds):
        for name, predictor in predictors.items():
            batch = predictor.read(texts)
            predictor.prepare(batch, "retrieval")
            started = time.perf_counter()
            predictor.encode(batch)
            best[name] = max(best[name], len(texts) / (time.perf_counter() - started))
    print("| scorer | precision | documents/s | P@1 | P@3 | P@5 | same of 5 best |")
    print("|---|---|---|---|---|---|---|")
    for scorer in predictors["float32"].scorers:
        if not predictors["float32"].needs_encoder(scorer):
            continue
        wanted = top_ids(predictors["float32"], texts, scorer)
        for name, predictor in predictors.items():
            found = top_ids(predictor, texts, scorer)
            places = " | ".join(f"{precision_at(depth, found, truths):.4f}" for depth in DEPTHS)
            same = np.mean([len({*x} & {*y}) / 5 for x, y in zip(found, wanted, strict=True)])
            print(f"| {scorer} | {name} | {best[name]:.1f} | {places} | {same:.3f} |")
    print(f"bfloat16 is {best['bfloat16'] / best['float32']:.2f} times as fast")


def top_ids(predictor: Predictor, texts: list[str], scorer: str) -> list[list[str]]:
    """Return the ids of the five best labels of each text."""
    return [[x.id for x in found.labels] for found in predictor.predict(texts, k=5, scorer=scorer)]


def precision_at(depth: int, found: list[list[str]], truths: list[set[str]]) -> float:
    """Return P@depth."""
    hits = (len({*ids[:depth]} & truth) for ids, truth in zip(found, truths, strict=True))
    return sum(hits) / (depth * len(found))


if __name__ == "__main__":
    main()
