"""One service process against several that share the pages of one model, at saturation.

    python tests/bench/processes.py REGISTRY [--processes 2] [--seconds 5] [--rounds 5]

Both take turns over all processors; requests and connections are the same, divided among the
processes. A figure is the median of the rounds. Memory is PSS: a page that n processes share counts
1/n for each. The load generator runs on the same machine and takes its share.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from http_cost import cpu_s
from load_generator import asked, predict_requests, run
from machine import begin
from recording import Table, add_json_option, keep
from served_process import Served, served
from service_throughput import read_texts

CONNECTIONS = 32


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("registry", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    add_json_option(parser)
    chosen = begin(parser)
    table = Table({
        "texts": "", "processes": "", "answers a second": ",.0f", "CPU ms an answer": ".2f",
        "PSS, MiB": ",.0f",
    })  # fmt: skip
    with ExitStack() as stack:
        groups = [
            [stack.enter_context(served(chosen.registry)) for _ in range(count)]
            for count in (1, chosen.processes)
        ]
        for kind in ("titles", "documents"):
            requests = predict_requests(read_texts(kind, 256))
            rounds = [
                [measure(group, requests, chosen.seconds) for group in groups]
                for _ in range(chosen.rounds)
            ]
            for number, group in enumerate(groups):
                rate, cost = np.median([each[number] for each in rounds], axis=0)
                table.add(kind, len(group), rate, cost, sum(map(pss_mib, group)))
    keep(chosen.json, {"processes": table})


def measure(
    group: Sequence[Served], requests: Sequence[bytes], seconds: float
) -> tuple[float, float]:
    """Return answers a second of some processes together, and milliseconds of CPU for each."""

    before = sum(cpu_s(each.pid) for each in group)
    loads = run(asked([each.port for each in group], requests, CONNECTIONS, seconds))
    seconds_of_cpu = sum(cpu_s(each.pid) for each in group) - before
    answers = sum(load.statuses[200] for load in loads)
    return sum(load.rate for load in loads), 1000 * seconds_of_cpu / answers


def pss_mib(service: Served) -> float:
    """Return the memory of a process, its part of shared pages among it."""
    text = Path(f"/proc/{service.pid}/smaps_rollup").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("Pss:")]
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
