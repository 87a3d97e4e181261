"""What a text costs without an encoder, from text to labels: each scorer alone, and the blends.

    OMP_NUM_THREADS=1 python tests/bench/encoder_free.py REGISTRY CORPUS [--json FILE]

CPU milliseconds a text, one thread, the least of several rounds in which all take turns: texts of
the test split whole, and their first lines (titles) alone, one by one and in batches; k of 5, 20
and 100. "sum" is the sum of the scorers that a blend has, each asked alone; "scored" is how many
labels the blend is computed for, by text.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from unittest import mock

from machine import begin
from recording import Table, add_json_option, keep

from longtail.models.bundle.registry import Registry
from longtail.models.names import ENSEMBLE, FAST
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.scorers import scan
from longtail.training.data.dataset import open_dataset

NUM_TEXTS, BATCH, ROUNDS = 128, 32, 5
KS = (5, 20, 100)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("registry", type=Path)
    parser.add_argument("corpus", type=Path)
    add_json_option(parser)
    asked = begin(parser)
    predictor = Predictor.of_bundle(
        Registry(asked.registry).open("current"), device="cpu", num_threads=1
    )
    texts = list(islice(open_dataset(asked.corpus).split("test").texts(), NUM_TEXTS))
    kinds = {"documents": texts, "titles": [text.strip().splitlines()[0] for text in texts]}
    blends = [name for name in (FAST, ENSEMBLE) if name in predictor.scorers.names]
    alone = [name for name in predictor.scorers.names if name not in blends]
    columns = {"texts": "", "words": ",.0f", "a call": "", "k": ""} | dict.fromkeys(alone, ".3f")
    for blend in blends:
        columns |= {blend: ".3f", f"{blend} / sum": ".2f", f"{blend}: scored": ",.0f"}
    table = Table(columns)
    for kind, some in kinds.items():
        words = sum(len(text.split()) for text in some) / len(some)
        for size in (1, BATCH):
            for k in KS:
                table.add(kind, words, size, k, *measured(predictor, some, size, k, alone, blends))
    keep(asked.json, {"labels": len(predictor.catalogue), "costs": table.to_json()}, seeds=[0])


def measured(
    predictor: Predictor, texts: list[str], size: int, k: int, alone: list[str], blends: list[str]
) -> list[float]:
    """Return the cells of a row, from the first scorer on."""
    parts = [texts[start : start + size] for start in range(0, len(texts), size)]
    least = dict.fromkeys([*alone, *blends], float("inf"))
    for _ in range(ROUNDS):
        for name in least:
            options = RankingOptions(k, name)
            started = time.process_time()
            for part in parts:
                predictor.predict_batch(predictor.read(part), options)
            spent = 1000 * (time.process_time() - started) / len(texts)
            least[name] = min(least[name], spent)
    cells = [least[name] for name in alone]
    for name in blends:
        members = predictor.scorers._blends[name].members  # a bench may look inside
        with mock.patch.object(scan, "_rank", _Counting(scan._rank)) as counted:
            for part in parts:
                predictor.predict_batch(predictor.read(part), RankingOptions(k, name))
        total = sum(least[member] for member in members)
        cells += [least[name], least[name] / total, counted.total / len(texts)]
    return cells


class _Counting:
    """Calls a function, and sums what it returns."""

    def __init__(self, function: Callable[..., int]) -> None:
        self._function = function
        self.total = 0

    def __call__(self, *arguments: object) -> None:
        self.total += self._function(*arguments)


if __name__ == "__main__":
    main()
