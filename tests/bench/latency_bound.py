"""How p99 and p50 of waiting requests relate where nothing but the model takes time.

    python tests/bench/latency_bound.py REGISTRY [--texts titles|documents] [--threads 2]
                                        [--scorer classifier] [--seconds 20] [--rounds 3]

The seconds of batches of 1 to 32 texts are measured without a service: on one thread (alone, so
that no other batch takes from its memory), and on all. These samples make up a queue in which no
HTTP, tokeniser thread or load generator takes time: a batch begins as soon as a server is free, and
takes its share of all that wait. Requests arrive at random times (a Poisson process), at half and
at 80 % of the rate of full batches, at as many servers of one thread as there are threads, or at
one that has all of them.

Then the service gets requests at half and at 80 % of its own highest rate, in several rounds with
arrivals of their own (0 rounds: not at all). Bar: the ratio of its p99 to its p50, over all rounds,
is at most 1.5 times that of the queue of one server.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from load_generator import arrivals, at_rate, predict_requests, run, saturate
from machine import begin
from recording import Table, add_json_option, keep
from served_process import served
from service_throughput import read_texts

from longtail.models.bundle.registry import Registry
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.service.process.compute_threads import limit_threads, prepare_process

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
SHARES = (0.5, 0.8)
REPEATS = 60
NUM_TEXTS = 2000
NUM_ARRIVALS = 50_000
CONNECTIONS = 32


def main() -> None:
    """Measure, make up the queues, and print a table of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("--texts", choices=("titles", "documents"), default="titles")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--scorer", help="by default the model's own")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    add_json_option(parser)
    chosen = begin(parser)
    prepare_process(chosen.threads)
    bundle = Registry(chosen.registry).open()
    texts = read_texts(chosen.texts, NUM_TEXTS)

    samples = {}
    for threads in sorted({1, chosen.threads}):
        limit_threads(threads)
        predictor = Predictor.of_bundle(bundle, num_threads=threads, precision="auto")
        scorer = chosen.scorer or predictor.scorers.default
        samples[threads] = seconds_of(predictor, scorer, texts)
        medians = {size: 1e3 * np.median(found) for size, found in samples[threads].items()}
        times = ", ".join(f"{size}: {median:.1f}" for size, median in medians.items())
        print(f"{threads} threads, ms a batch of so many texts: {times}", flush=True)

    table = Table({
        "servers x threads": "", "full, texts/s": ".0f", "load": ".1f", "p50, ms": ".1f",
        "p99, ms": ".1f", "p99 / p50": ".1f",
    })  # fmt: skip
    for threads, of_size in samples.items():
        servers = chosen.threads // threads
        full = servers * max(size / np.mean(found) for size, found in of_size.items())
        for share in SHARES:
            p50, p99 = queue(of_size, servers, share * full)
            table.add(f"{servers} x {threads}", full, share, 1e3 * p50, 1e3 * p99, p99 / p50)
    figures: dict[str, object] = {"queues": table}
    if chosen.rounds:
        figures["service"] = measure_service(chosen, texts, scorer)
    keep(chosen.json, figures)


def measure_service(chosen: argparse.Namespace, texts: Sequence[str], scorer: str) -> Table:
    """Return the latencies of the service at shares of its rate."""
    requests = predict_requests(texts, scorer=scorer)
    table = Table({
        "texts": "", "requests/s": ".0f", "load": ".1f", "p50, ms": ".1f", "p99, ms": ".1f",
        "p99 / p50": ".1f",
    })  # fmt: skip
    with served(chosen.registry, "--num-threads", str(chosen.threads)) as service:
        run(saturate(service.port, requests, CONNECTIONS, 3))  # warm
        full = run(saturate(service.port, requests, CONNECTIONS, chosen.seconds)).rate
        for share in SHARES:
            seconds: list[float] = []
            for seed in range(chosen.rounds):
                work = at_rate(service.port, requests, share * full, chosen.seconds, seed=seed)
                seconds += run(work).latencies[200]
            p50, p99 = np.percentile(seconds, (50, 99))
            table.add(chosen.texts, full, share, 1e3 * p50, 1e3 * p99, p99 / p50)
    return table


def seconds_of(predictor: Predictor, scorer: str, texts: Sequence[str]) -> dict[int, list[float]]:
    """Return the seconds of batches by their size, of texts in turn."""
    found = {}
    for size in SIZES:
        seconds = []
        for turn in range(REPEATS + REPEATS // 3):
            part = [texts[(turn * size + i) % len(texts)] for i in range(size)]
            started = time.perf_counter()
            batch = predictor.read(part)
            predictor.prepare(batch, scorer)
            predictor.predict_batch(batch, RankingOptions(scorer=scorer))
            seconds.append(time.perf_counter() - started)
        found[size] = seconds[REPEATS // 3 :]  # the first ones warm it
    return found


def queue(seconds: Mapping[int, Sequence[float]], servers: int, rate: float) -> tuple[float, float]:
    """Return median and p99 of the seconds in a queue.

    Args:
        seconds: Of batches by their size; one of another size takes those of the next larger one.
        servers: That each take a batch at a time.
        rate: Arrivals a second.
    """
    coming = deque(arrivals(rate, NUM_ARRIVALS / rate))
    rng = random.Random(3)  # noqa: S311
    waiting: deque[float] = deque()
    free_at = [0.0] * servers  # a heap
    times: list[float] = []
    while coming:
        now = max(free_at[0], coming[0])  # when the next batch begins
        while coming and coming[0] <= now:
            waiting.append(coming.popleft())
        while waiting and free_at[0] <= now:
            size = min(math.ceil(len(waiting) / servers), SIZES[-1])
            sampled = min(each for each in SIZES if each >= size)
            end = now + rng.choice(seconds[sampled]) * size / sampled
            times += [end - waiting.popleft() for _ in range(size)]
            heapq.heapreplace(free_at, end)
        if waiting:  # they go first, when the next server is free
            coming.extendleft(reversed(waiting))
            waiting.clear()
    p50, p99 = np.percentile(times, (50, 99))
    return float(p50), float(p99)


if __name__ == "__main__":
    main()
