"""How many entries of feedback a service acknowledges in a second, each after it is on the disk.

    python tests/bench/feedback_writes.py REGISTRY [--clients 32] [--seconds 15] [--store FOLDER]

Each client sends one entry a request over a connection of its own, and the next one when that is
acknowledged. Beside the service, how many of these writes the disk itself can make durable one
after the other (append a page, fsync) is measured: many entries share one transaction, so that the
first figure may be above the second. Afterwards the store must hold what was acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
from recording import Table, add_json_option, keep
from served_process import served

from models.bundle.registry import Registry
from service.feedback.store import FeedbackStore

_DISK_S = 3.0
_PAGE = bytes(4096)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--store", type=Path, help="an empty folder; else a temporary one")
    add_json_option(parser)
    chosen = parser.parse_args()
    catalogue = Registry(chosen.registry).open().catalogue
    label_ids = [catalogue[row].id for row in range(3)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.store or Path(temporary)
        disk = syncs_per_second(folder)
        options = ["--feedback", str(folder / "store"), "--feedback-texts"]
        with served(chosen.registry, *options) as service:
            url = f"http://127.0.0.1:{service.port}/v1/feedback"
            times = asyncio.run(give(url, label_ids, chosen.clients, chosen.seconds))
        with FeedbackStore(folder / "store") as store:
            stored = store.counts().entries
    assert stored == len(times), f"{len(times)} were acknowledged, but {stored} are stored"
    table = Table({
        "clients": ".0f", "acknowledged/s": ".0f", "p50, ms": ".1f", "p99, ms": ".1f",
        "fsyncs/s of the disk": ".0f", "load average": ".1f",
    })  # fmt: skip
    p50, p99 = np.percentile(times, [50, 99]) * 1e3
    rate = len(times) / chosen.seconds
    table.add(chosen.clients, rate, p50, p99, disk, os.getloadavg()[0])
    keep(chosen.json, {"writes": table})


def syncs_per_second(folder: Path) -> float:
    """Return how often the disk makes a page durable, one after the other."""
    path = folder / "probe"
    started, count = time.perf_counter(), 0
    with path.open("wb", buffering=0) as file:
        while time.perf_counter() - started < _DISK_S:
            file.write(_PAGE)
            os.fsync(file.fileno())
            count += 1
    path.unlink()
    return count / (time.perf_counter() - started)


async def give(url: str, label_ids: list[str], num_clients: int, seconds: float) -> list[float]:
    """Return the seconds that each acknowledged entry took."""
    deadline = time.perf_counter() + seconds

    async def give_on(number: int) -> list[float]:
        times: list[float] = []
        async with httpx.AsyncClient(timeout=60) as client:
            while (started := time.perf_counter()) < deadline:
                entry = {
                    "id": f"{number}-{len(times)}",
                    "text": f"Text {len(times)} of client {number}: duties on olive oil. " * 10,
                    "accepted": label_ids[:2],
                    "rejected": label_ids[2:],
                }
                answer = await client.post(url, json={"entries": [entry]})
                answer.raise_for_status()
                times.append(time.perf_counter() - started)
        return times

    found = await asyncio.gather(*(give_on(number) for number in range(num_clients)))
    return [each for times in found for each in times]


if __name__ == "__main__":
    main()
