"""What rules for cutting batches cost in latency: queues made up from what batches take.

    python tests/bench/batch_rules.py [--fixed-ms 3 --text-ms 3.1 --workers 2]

A batch of n texts takes a fixed time and a time for each text. Requests come at random times (a
Poisson process, always the same one), at shares of the rate of full batches. Nothing else takes
time, as in `latency_bound.py`, which measures what batches take.

The rules, of n texts that wait for m workers: their share n / m (at least one); all of them; the
share, but as many as bear a tenth more than what comes (`longtail.service.engine.traffic`); what
makes the sum of delays least if what is left of the share is the next batch; and up to 8 texts as
soon as they are there, or 5 ms have passed.
"""

from __future__ import annotations

import argparse
import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from load_generator import arrivals
from machine import begin
from recording import Table, add_json_option, keep

from longtail.service.engine.traffic import least_batch

LOADS = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95)
MOST = 32
NUM_ARRIVALS = 40_000
FILL, WAIT_S = 8, 0.005

Rule = Callable[[int, float], tuple[int, float]]
"""From the number of texts that wait, and how long the oldest has, to the size of the batch; or to
how long to wait for more instead."""


def main() -> None:
    """Make up the queues, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed-ms", type=float, default=3.0)
    parser.add_argument("--text-ms", type=float, default=3.1)
    parser.add_argument("--workers", type=int, default=2)
    add_json_option(parser)
    chosen = begin(parser)
    seconds = [(chosen.fixed_ms + chosen.text_ms * n) / 1000 for n in range(MOST + 1)]
    full = chosen.workers * MOST / seconds[MOST]
    names = list(rules_of(seconds, chosen.workers, 1.0))
    table = Table({"load": "", "texts/s": ".0f"} | {f"{name}, p99 ms": ".1f" for name in names})
    for load in LOADS:
        times = list(arrivals(load * full, NUM_ARRIVALS / (load * full)))
        rules = rules_of(seconds, chosen.workers, load * full).values()
        found = [1e3 * p99(seconds, chosen.workers, times, rule) for rule in rules]
        table.add(load, load * full, *found)
    keep(chosen.json, {"p99": table}, seeds=[7])


def rules_of(seconds: Sequence[float], workers: int, rate: float) -> dict[str, Rule]:
    """Return the rules by name, for texts that come at a rate."""
    each = seconds[2] - seconds[1]
    least = least_batch(rate, 1 / each, workers, seconds[0] / each)
    needed = MOST if least == math.inf else max(1, math.ceil(least))

    def share(waiting: int) -> int:
        return math.ceil(waiting / workers)

    def least_delay(waiting: int, _: float) -> tuple[int, float]:
        most = min(share(waiting), MOST)
        rest = [0.0, *seconds[1:]]
        delays = [most * seconds[k] + (most - k) * rest[most - k] for k in range(1, most + 1)]
        return 1 + int(np.argmin(delays)), 0.0

    def fill(waiting: int, oldest: float) -> tuple[int, float]:
        return min(waiting, FILL), 0.0 if waiting >= FILL else max(0.0, WAIT_S - oldest)

    return {
        "share": lambda waiting, _: (share(waiting), 0.0),
        "all": lambda waiting, _: (waiting, 0.0),
        "share, at least what is needed": lambda n, _: (max(share(n), min(n, needed)), 0.0),
        "least delay": least_delay,
        "fill or 5 ms": fill,
    }


def p99(seconds: Sequence[float], workers: int, times: Sequence[float], rule: Rule) -> float:
    """Return the p99 of the seconds from a text's coming to the end of its batch."""
    waiting: deque[float] = deque()
    free_at = [0.0] * workers  # a heap
    delays: list[float] = []
    coming = 0
    while coming < len(times) or waiting:
        now = max(free_at[0], waiting[0] if waiting else times[coming])
        while coming < len(times) and times[coming] <= now:
            waiting.append(times[coming])
            coming += 1
        size, pause = rule(len(waiting), now - waiting[0])
        if pause > 1e-9:
            following = times[coming] if coming < len(times) else math.inf
            heapq.heapreplace(free_at, min(now + pause, max(following, now + 1e-9)))
            continue
        end = now + seconds[min(size, MOST)]
        delays += [end - waiting.popleft() for _ in range(min(size, MOST))]
        heapq.heapreplace(free_at, end)
    return float(np.percentile(delays, 99))


if __name__ == "__main__":
    main()
