"""Latency of a query that asks n shards and waits for the last: simulated from measured latencies.

    python tests/bench/shard_fanout.py [--labels 100000] [--queries 2000] [--output FOLDER]
    python tests/bench/shard_fanout.py --latencies FILE

Latencies of one shard are measured here: the exact best 10 labels of one text at a time, by
`longtail.models.ranking.index`, one thread; or read from a file with a number of milliseconds a
line, such as from the access log of a service. A query of n shards takes the largest of n draws. A
hedged request is sent to a shard's second machine when the first has not answered after the 95th
percentile, and the first answer counts. Draws are independent and nothing waits in a queue: a slow
spell that hits all shards at once is not in here, nor is what the extra requests cost where
machines are full. On a machine that others use, --clock cpu leaves their turns out.

Prints a Markdown table; with --output, writes shard_fanout.md and shard_fanout.png there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float64
from machine import begin
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from recording import add_json_option, keep

from longtail.models.ranking.index import InnerProductIndex

FANOUTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
HEDGE_QUANTILE = 0.95
NUM_DRAWS = 20_000
WARM_UP = 50


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def measure(
    num_labels: int, dim: int, num_queries: int, clock: Callable[[], float]
) -> Float64[np.ndarray, query]:
    """Return the milliseconds that each of some queries takes on one shard, one after the other."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((num_labels, dim), dtype=np.float32)
    index = InnerProductIndex(vectors, np.arange(num_labels, dtype=np.int64), device="cpu")
    queries = rng.standard_normal((num_queries + WARM_UP, dim), dtype=np.float32)
    seconds = []
    for query in queries:
        started = clock()
        index.top(query[None], 10)
        seconds.append(clock() - started)
    return 1000 * np.array(seconds[WARM_UP:])


def simulate(
    latencies: Float64[np.ndarray, query], fanout: int, hedge_after: float | None
) -> Float64[np.ndarray, draw]:
    """Return the milliseconds of queries that wait for all of `fanout` shards.

    Args:
        latencies: Of one shard; drawn from with replacement.
        fanout: Number of shards.
        hedge_after: Milliseconds after which a shard's second machine is asked; None: never.
    """
    rng = np.random.default_rng(fanout)
    slowest = np.zeros(NUM_DRAWS)
    for _ in range(fanout):
        first = rng.choice(latencies, NUM_DRAWS)
        if hedge_after is not None:
            second = hedge_after + rng.choice(latencies, NUM_DRAWS)
            first = np.where(first > hedge_after, np.minimum(first, second), first)
        np.maximum(slowest, first, out=slowest)
    return slowest


def table_of(
    rows: list[tuple[int, Float64[np.ndarray, draw], Float64[np.ndarray, draw]]],
) -> str:
    """Return a Markdown table of quantiles."""
    lines = [
        "| shards | p50, ms | p99, ms | p99.9, ms | hedged: p50 | p99 | p99.9 |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for fanout, plain, hedged in rows:
        cells = [f"{np.quantile(x, q):.1f}" for x in (plain, hedged) for q in (0.5, 0.99, 0.999)]
        lines.append(f"| {fanout} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw(
    rows: list[tuple[int, Float64[np.ndarray, draw], Float64[np.ndarray, draw]]], path: Path
) -> None:
    """Draw median and 99th percentile over the number of shards."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    fanouts = [row[0] for row in rows]
    for place, name, colour in ((1, "one request a shard", "C3"), (2, "hedged at p95", "C0")):
        for quantile, style in ((0.99, "-"), (0.5, "--")):
            values = [float(np.quantile(row[place], quantile)) for row in rows]
            axes.plot(
                fanouts, values, style, color=colour, marker="o", markersize=3,
                label=f"{name}, p{100 * quantile:g}",
            )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks(fanouts, [str(x) for x in fanouts])
    axes.set_ylim(0)
    axes.set_xlabel("shards asked")
    axes.set_ylabel("milliseconds until the last has answered")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=385)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--latencies", type=Path)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--output", type=Path)
    add_json_option(parser)
    options = begin(parser)
    torch.set_num_threads(1)
    if options.latencies is None:
        clock = CLOCKS[options.clock]
        latencies = measure(options.labels, options.dim, options.queries, clock)
        source = f"{options.labels:,} labels x {options.dim} dimensions, {options.clock} time"
    else:
        latencies = np.loadtxt(options.latencies, ndmin=1)
        source = str(options.latencies)
    hedge_after = float(np.quantile(latencies, HEDGE_QUANTILE))
    rows = [(n, simulate(latencies, n, None), simulate(latencies, n, hedge_after)) for n in FANOUTS]
    quantiles = ", ".join(
        f"p{100 * q:g} {np.quantile(latencies, q):.1f}" for q in (0.5, 0.95, 0.99, 0.999)
    )
    text = (
        f"{datetime.now(UTC):%Y-%m-%d}, {len(latencies):,} latencies of one shard ({source}), ms: "
        f"{quantiles}.\nHedged after {hedge_after:.1f} ms: "
        f"{np.mean(latencies > hedge_after):.1%} more requests.\n\n{table_of(rows)}"
    )
    print(text)
    names = ("p50, ms", "p99, ms", "p99.9, ms", "hedged: p50", "hedged: p99", "hedged: p99.9")
    quantiles_of = {
        fanout: [float(np.quantile(x, q)) for x in (plain, hedged) for q in (0.5, 0.99, 0.999)]
        for fanout, plain, hedged in rows
    }
    figures = [{"shards": n} | dict(zip(names, x, strict=True)) for n, x in quantiles_of.items()]
    keep(options.json, {"fanout": figures})
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "shard_fanout.md").write_text(text, encoding="utf-8")
        draw(rows, options.output / "shard_fanout.png")


if __name__ == "__main__":
    main()
