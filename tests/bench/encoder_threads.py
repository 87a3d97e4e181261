"""Texts a second of an encoder: threads inside each operation, and batches at once.

    python tests/bench/encoder_threads.py CORPUS [--texts 256] [--repeats 3] [--json FILE]

The packaged encoder reads the same texts both ways in turns, alone and beside processes that only
compute. "ratio" is that of the texts a second, batches at once over threads inside.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import begin
from recording import Table, add_json_option, keep

from longtail.models.encoders import dual_encoder
from longtail.models.encoders.dual_encoder import DualEncoder, encode_all
from longtail.models.encoders.families import VectorHead
from longtail.models.encoders.pretrained import find_encoder, load_tokenizer, load_transformer
from longtail.models.encoders.tokens import TokenizedTexts, tokenize_texts
from longtail.models.predict.loading import take_fastest_backend
from longtail.training.data.dataset import open_dataset

BACKGROUND = (0, 4)


def compute() -> None:
    """Keep a core busy for ever."""
    while True:
        sum(range(10**6))


@contextmanager
def beside(num_processes: int) -> Iterator[None]:
    """Let processes compute meanwhile."""
    spawned = multiprocessing.get_context("spawn")
    processes = [spawned.Process(target=compute, daemon=True) for _ in range(num_processes)]
    for process in processes:
        process.start()
    time.sleep(2 * bool(processes))
    try:
        yield
    finally:
        for process in processes:
            process.kill()


class OneAfterTheOther:
    """In the place of a pool: a batch after the other, with all threads inside each operation."""

    def __init__(self, num_threads: int, **_: Any) -> None:
        self.map = map

    def __enter__(self) -> OneAfterTheOther:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def timed(encoder: DualEncoder, tokens: TokenizedTexts, pool: Any) -> tuple[float, np.ndarray]:
    """Return texts a second, and the vectors."""
    dual_encoder.ThreadPoolExecutor = pool
    started = time.perf_counter()
    vectors = encode_all(encoder, tokens, "document", pad_id=0)
    return len(tokens) / (time.perf_counter() - started), vectors


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    add_json_option(parser)
    chosen = begin(parser)
    folder = find_encoder("packaged").folder
    encoder = DualEncoder(load_transformer(folder), VectorHead()).eval()
    take_fastest_backend(encoder)
    texts = list(islice(open_dataset(chosen.corpus).split("train").texts(), chosen.texts))
    tokens = tokenize_texts(load_tokenizer(folder), texts, 128)
    ways = (OneAfterTheOther, dual_encoder.ThreadPoolExecutor)
    table = Table({"busy processes beside": "", "inside": ".1f", "at once": ".1f", "ratio": ".2f"})
    differences = []
    for busy in BACKGROUND:
        with beside(busy):
            rows = [[timed(encoder, tokens, way) for way in ways] for _ in range(chosen.repeats)]
        rates = np.array([[rate for rate, _ in row] for row in rows])
        inside, at_once = np.median(rates, axis=0)
        table.add(busy, inside, at_once, statistics.median(rates[:, 1] / rates[:, 0]))
        differences += [float(np.abs(a - b).max()) for (_, a), (_, b) in rows]
    print(f"\nLargest difference of a number of a vector: {max(differences):.2g}")
    figures = {"threads": torch.get_num_threads(), "texts": len(texts), "rates": table}
    keep(chosen.json, figures)


if __name__ == "__main__":
    main()
