"""HTTP at saturation against the bare model, and latency at half that load, as ratios in one run.

    python tests/bench/service_throughput.py REGISTRY [--texts titles|documents] [--seconds 20]

The bare model is the same version in a process of its own with the same number of threads: all
texts tokenised, sorted by length, encoded in batches of the service's token budget and ranked, in a
loop (ideal batching). Its libraries are set up as the service's are, but for one compute thread
that has all their threads. Service and bare model run in turn, several rounds of each, and the
ratio is that of their best rounds; that of their means stands beside it. The load generator runs on
the same machine and takes its share.

At half load requests come at random times, as those of many people do (a Poisson process), and then
once more at even distances, as most load generators send them.

Bars: throughput at least 0.9 of the bare model's; p99 at half of the service's own rate at most 3
times the bare latency of a single text (its median).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from load_generator import at_rate, predict_requests, run, saturate
from machine import begin, same_threads
from recording import add_json_option, keep
from served_process import served

from longtail.models.bundle.registry import Registry
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.service.process.compute_threads import limit_threads

DEMO = Path(__file__).parents[2] / "training" / "demo_data" / "tst.json.gz"


def read_texts(kind: str, count: int) -> list[str]:
    """Return texts of the demo's test split: titles alone, or titles and contents."""
    with gzip.open(DEMO, "rt", encoding="utf-8") as file:
        documents = [json.loads(line) for line in file]
    texts = [x["title"] if kind == "titles" else f"{x['title']}\n{x['content']}" for x in documents]
    return [texts[i % len(texts)] for i in range(count)]


class Bare:
    """The model without a service."""

    def __init__(self, registry: Path, scorer: str, threads: int, precision: str) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        limit_threads(threads)
        self._scorer = scorer
        self._predictor = Predictor.of_bundle(
            Registry(registry).open(), num_threads=threads, precision=precision
        )
        self.single(["warm"] * 3)

    def rate(self, texts: Sequence[str]) -> float:
        """Return texts a second with ideal batching."""
        started = time.perf_counter()
        batch = self._predictor.read(texts)
        tokens = np.array(self._predictor.prepare(batch, self._scorer))
        order = np.argsort(tokens, kind="stable")
        start, budget = 0, self._predictor.batch_tokens
        while start < len(order):
            sizes = np.arange(1, len(order) - start + 1) * tokens[order[start:]]
            end = start + max(1, int(np.searchsorted(sizes, budget, side="right")))
            part = batch.take(order[start:end].tolist())
            self._predictor.predict_batch(part, RankingOptions(scorer=self._scorer))
            start = end
        return len(texts) / (time.perf_counter() - started)

    def single(self, texts: Sequence[str]) -> float:
        """Return the median seconds of one text."""
        seconds = []
        for text in texts:
            started = time.perf_counter()
            self._predictor.predict([text], scorer=self._scorer)
            seconds.append(time.perf_counter() - started)
        return float(np.median(seconds))


def main() -> None:
    """Measure and print one table row a round, then the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("--texts", choices=("titles", "documents"), default="titles")
    parser.add_argument("--scorer", default="classifier")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--connections", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    add_json_option(parser)
    chosen = begin(parser)
    same_threads(chosen.threads)

    texts = read_texts(chosen.texts, 2000)
    requests = predict_requests(texts, scorer=chosen.scorer)
    bare = Bare(chosen.registry, chosen.scorer, chosen.threads, chosen.precision)
    options = ("--num-threads", str(chosen.threads), "--precision", chosen.precision)
    bares, rates, singles, halves, evens = [], [], [], [], []
    with served(chosen.registry, *options) as service:
        sample = texts[: max(50, int(bare.rate(texts[:100]) * chosen.seconds / 2))]
        run(saturate(service.port, requests, chosen.connections, 2))  # warm
        for number in range(chosen.rounds):
            bare_rate, single = bare.rate(sample), bare.single(texts[:50])
            full = run(saturate(service.port, requests, chosen.connections, chosen.seconds))
            rate = full.rate / 2
            half, even = (
                run(at_rate(service.port, requests, rate, chosen.seconds, even=x, seed=number))
                for x in (False, True)
            )
            bares.append(bare_rate)
            rates.append(full.rate)
            singles.append(single)
            halves.append(half.percentile(200, 99))
            evens.append(even.percentile(200, 99))
            print(
                f"round {number}: bare {bare_rate:.1f}/s, one text {single * 1e3:.1f} ms; HTTP "
                f"{full.rate:.1f}/s, {dict(full.statuses)}; at half: p50 "
                f"{half.percentile(200, 50) * 1e3:.1f} ms, p99 {halves[-1] * 1e3:.1f} ms; at even "
                f"distances {even.percentile(200, 50) * 1e3:.1f} and {evens[-1] * 1e3:.1f} ms",
                flush=True,
            )
    best, mean = max(rates) / max(bares), sum(rates) / sum(bares)
    print(f"throughput: {best:.2f} of the bare model's, {mean:.2f} of means (bar: 0.90)")
    print(f"p99 at half load: {min(halves) / min(singles):.1f} x one text (bar: 3.0)")
    print(f"the same with requests at even distances: {min(evens) / min(singles):.1f} x one text")
    rounds = {
        "bare, texts/s": bares,
        "HTTP, texts/s": rates,
        "one text, s": singles,
        "p99 at half, s": halves,
        "p99 at half, even, s": evens,
    }
    rows = [dict(zip(rounds, row, strict=True)) for row in zip(*rounds.values(), strict=True)]
    keep(chosen.json, {"rounds": rows})


if __name__ == "__main__":
    main()
