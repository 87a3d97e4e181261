"""What `accept` adds to the CPU of a request, with a model that makes a promise.

    python tests/bench/accept_cost.py REGISTRY [--rounds 120] [--json FILE]

One service answers the shortest warm-up text of the bundle with ten labels over one connection,
without and with `"accept": true`, which take turns. A figure is the CPU time of its process divided
by its answers: the median of the rounds. The ratio is the median of those of the rounds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

from http_cost import cpu_s
from load_generator import predict_requests, run, saturate
from machine import begin
from recording import Table, add_json_option, keep
from served_process import Served, served

from longtail.models.bundle.registry import Registry
from longtail.models.bundle.trained_on import read_probes

KINDS = {"without": {}, "with": {"accept": True}}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("registry", type=Path)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=120)
    add_json_option(parser)
    chosen = begin(parser)
    text = min(read_probes(Registry(chosen.registry).open("current")), key=len)
    costs: dict[str, list[float]] = {name: [] for name in KINDS}
    with served(chosen.registry, "--num-threads", "1") as service:
        for number in range(-1, chosen.rounds):  # the first one warms up
            for name in sorted(KINDS, reverse=number % 2 == 0):  # who comes first takes turns, too
                requests = predict_requests([text], k=10, **KINDS[name])
                cost = cost_ms(service, requests, chosen.seconds)
                costs[name] += [cost] if number >= 0 else []
    ratios = [after / before for before, after in zip(*costs.values(), strict=True)]
    table = Table({"without": ".3f", "with": ".3f", "ratio": ".3f"})
    table.add(*map(median, costs.values()), median(ratios))
    keep(chosen.json, {"cpu_ms": table})


def cost_ms(service: Served, requests: list[bytes], seconds: float) -> float:
    """Return the CPU milliseconds of an answer."""
    before = cpu_s(service.pid)
    load = run(saturate(service.port, requests, 1, seconds))
    assert set(load.statuses) == {200}, load.statuses
    return 1000 * (cpu_s(service.pid) - before) / load.statuses[200]


if __name__ == "__main__":
    main()
