"""One client that asks as much as it can, beside one that asks once a second: who is served?

    python tests/bench/service_fairness.py REGISTRY [--seconds 60] [--connections 500]

The first client has many connections, asks again as soon as it is answered or refused, and runs as
a process of its own with the least priority. The second comes from another address (127.0.0.2) and
asks up to three times more, when `Retry-After` says so. Bar: at least 90 % of its requests succeed.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from load_generator import post, run, saturate
from machine import begin
from recording import add_json_option, keep
from served_process import served

GREEDY = "duties on imports of olive oil and customs " * 8
TRIES = 4
MOST_WAIT_S = 20.0


def ask_greedily(port: int, connections: int, seconds: float) -> Counter[int]:
    """Return the statuses of a client that asks again and again over each of its connections.

    Args:
        port: Of the service.
        connections: How many.
        seconds: For how long.
    """
    requests = [
        post(
            "/v1/predict",
            json.dumps({"texts": [f"{i} {j} {GREEDY}" for j in range(20)]}).encode(),
        )
        for i in range(2000)
    ]
    return run(saturate(port, requests, connections, seconds)).statuses


@dataclass(frozen=True)
class Ending:
    """How a request ended that is asked again when it is refused.

    Attributes:
        statuses: One for each time that it was asked.
        seconds: Of all, with the pauses between.
    """

    statuses: Sequence[int]
    seconds: float


def ask_politely(port: int, number: int) -> Ending:
    """Return how a request ends that is asked again after the time that a refusal names."""
    statuses: list[int] = []
    started = time.perf_counter()
    body = json.dumps({"text": f"polite {number} imports of olive oil", "k": 5})
    for _ in range(TRIES):
        connection = http.client.HTTPConnection(
            "127.0.0.1", port, timeout=60, source_address=("127.0.0.2", 0)
        )
        connection.request("POST", "/v1/predict", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        statuses.append(answer.status)
        if answer.status != http.client.TOO_MANY_REQUESTS:
            break
        time.sleep(min(float(answer.headers["Retry-After"]), MOST_WAIT_S))
    return Ending(statuses, time.perf_counter() - started)


def polite_answers(port: int, seconds: float) -> list[Ending]:
    """Return how the requests of a client end that asks once a second."""
    started = time.perf_counter()
    with ThreadPoolExecutor(64) as threads:
        waiting = []
        for number in itertools.takewhile(lambda x: x < seconds, itertools.count()):
            time.sleep(max(started + number - time.perf_counter(), 0))
            waiting.append(threads.submit(ask_politely, port, number))
        return [each.result() for each in waiting]


def main() -> None:
    """Measure and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--connections", type=int, default=500)
    add_json_option(parser)
    chosen = begin(parser)

    with (
        served(chosen.registry) as service,
        ProcessPoolExecutor(1, initializer=os.nice, initargs=(19,)) as greedy,
    ):
        alone = polite_answers(service.port, 10)
        load = greedy.submit(ask_greedily, service.port, chosen.connections, chosen.seconds)
        time.sleep(3)
        beside = polite_answers(service.port, chosen.seconds - 3)
        statuses = load.result()
    rows = []
    for name, endings in (("alone", alone), ("beside the greedy one", beside)):
        first, last = (
            float(np.mean([each.statuses[i] == http.client.OK for each in endings]))
            for i in (0, -1)
        )
        p50, p99 = np.quantile([each.seconds for each in endings], [0.5, 0.99])
        print(f"{name}: {last:.0%} of {len(endings)} succeed (bar: 90 %), {first:.0%} at once, p50 "
              f"{p50:.2f} s, p99 {p99:.2f} s")  # fmt: skip
        rows.append({"what": name, "success": last, "success at once": first,
                     "p50, s": float(p50), "p99, s": float(p99)})  # fmt: skip
    print(f"the greedy one: statuses {dict(statuses)}")
    keep(chosen.json, {"fairness": rows, "greedy statuses": dict(statuses)})


if __name__ == "__main__":
    main()
