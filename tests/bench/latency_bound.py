"""The least p99 at half load that what the model costs allows, were all else for nothing.

    python tests/bench/latency_bound.py REGISTRY [--threads 2] [--scorer classifier] [--seconds 20]

How long batches of 1 to 32 titles take is measured without a service: on one thread (alone, so that
no other batch takes from its memory), and on all. From these times a queue is made up, in which no
HTTP, tokeniser thread or load generator takes any: a batch begins as soon as somebody is free, and
takes its share of all that wait. Requests come at half the rate of full batches, at random times
(a Poisson process) or even distances, to as many servers of one thread as there are threads, or to
one that has them all. Its p99 is put beside the time of one text on all threads, which is what the
bar in `service_throughput.py` is a multiple of.

Then the service itself gets requests at random times, at the rate of the better queue, several
times for so many seconds (0: not at all). Bar: its best p99 is at most 1.5 times that queue's.
"""

from __future__ import annotations

import argparse
import heapq
import math
import time
from collections import deque
from collections.abc import Sequence
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
REPEATS = 60
NUM_ARRIVALS = 50_000


def main() -> None:
    """Measure, make up the queues, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--scorer", help="by default the model's own")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    add_json_option(parser)
    chosen = begin(parser)
    prepare_process(chosen.threads)
    bundle = Registry(chosen.registry).open()

    costs = {}
    for threads in sorted({1, chosen.threads}):
        limit_threads(threads)
        predictor = Predictor.of_bundle(bundle, num_threads=threads, precision="auto")
        scorer = chosen.scorer or predictor.scorers.default
        costs[threads] = seconds_of(predictor, scorer)
        times = ", ".join(f"{n}: {1e3 * t:.1f}" for n, t in zip(SIZES, costs[threads], strict=True))
        print(f"{threads} threads, ms a batch of so many titles: {times}", flush=True)

    single = costs[chosen.threads][0]
    table = Table({
        "servers x threads": "", "full, texts/s": ".0f", "p99 at half of it, ms": ".1f",
        "x one text": ".1f", "at even distances, ms": ".1f", "x one text, even": ".1f",
    })  # fmt: skip
    best = rate = math.inf
    for threads, seconds in costs.items():
        servers = chosen.threads // threads
        full = servers * max(size / each for size, each in zip(SIZES, seconds, strict=True))
        found = [p99(seconds, servers, full / 2, even=even) for even in (False, True)]
        row = (x for each in found for x in (1e3 * each, each / single))
        table.add(f"{servers} x {threads}", full, *row)
        if found[0] < best:
            best, rate = found[0], full / 2
    figures: dict[str, object] = {"queues": table}
    if chosen.seconds:
        figures["service"] = measure_service(chosen, scorer, rate, best)
    keep(chosen.json, figures)


def measure_service(chosen: argparse.Namespace, scorer: str, rate: float, bound: float) -> Table:
    """Return the latencies of the service at a rate, beside the p99 that the queue has there."""
    requests = predict_requests(read_texts("titles", 2000), scorer=scorer)
    table = Table({
        "scorer": "", "requests/s": ".0f", "p50, ms": ".1f", "p99, ms": ".1f", "queue's, ms": ".1f",
        "ratio": ".2f",
    })  # fmt: skip
    with served(chosen.registry, "--num-threads", str(chosen.threads)) as service:
        run(saturate(service.port, requests, 32, 3))  # warm
        for _ in range(chosen.rounds):
            load = run(at_rate(service.port, requests, rate, chosen.seconds))
            p50, p99_s = (load.percentile(200, percent) for percent in (50, 99))
            table.add(scorer, rate, 1e3 * p50, 1e3 * p99_s, 1e3 * bound, p99_s / bound)
    return table


def seconds_of(predictor: Predictor, scorer: str) -> list[float]:
    """Return the median seconds of batches of each size, of titles in turn."""
    texts = read_texts("titles", 2000)
    medians = []
    for size in SIZES:
        samples = []
        for turn in range(REPEATS):
            batch = predictor.read([texts[(turn * size + i) % len(texts)] for i in range(size)])
            predictor.prepare(batch, scorer)
            started = time.perf_counter()
            predictor.predict_batch(batch, RankingOptions(scorer=scorer))
            samples.append(time.perf_counter() - started)
        medians.append(float(np.median(samples[REPEATS // 3 :])))  # the first ones warm it
    return medians


def p99(seconds: Sequence[float], servers: int, rate: float, *, even: bool) -> float:
    """Return the p99 of the time in a queue where batches take so long."""
    coming = deque(arrivals(rate, NUM_ARRIVALS / rate, even=even))
    waiting: deque[float] = deque()
    free_at = [0.0] * servers  # a heap
    times: list[float] = []
    while coming:
        now = max(free_at[0], coming[0])  # when the next batch begins
        while coming and coming[0] <= now:
            waiting.append(coming.popleft())
        while waiting and free_at[0] <= now:
            size = min(math.ceil(len(waiting) / servers), SIZES[-1])
            end = now + float(np.interp(size, SIZES, seconds))
            times += [end - waiting.popleft() for _ in range(size)]
            heapq.heapreplace(free_at, end)
        if waiting:  # they go first, when the next server is free
            coming.extendleft(reversed(waiting))
            waiting.clear()
    return float(np.percentile(times, 99))


if __name__ == "__main__":
    main()
