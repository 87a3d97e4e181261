"""How many entries of feedback a service acknowledges in a second, each after it is on the disk.

    python tests/bench/feedback_writes.py REGISTRY [--clients 32] [--entries 1] [--seconds 15]
        [--store FOLDER]

Each client sends a request over a connection of its own, and the next one when that is
acknowledged. Beside the service, how many of these writes the disk itself can make durable one
after the other (append a page, fsync) is measured: many entries share one transaction, so that the
first figure may be above the second. Afterwards the store must hold what was acknowledged.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

from load_generator import post, run, saturate
from machine import begin
from recording import Table, add_json_option, keep
from served_process import served

from longtail.models.bundle.registry import Registry
from longtail.service.feedback.store import FeedbackStore

_DISK_S = 3.0
_PAGE = bytes(4096)
_MAX_ENTRIES = 100_000
"""More than are acknowledged in the time."""


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--entries", type=int, default=1, help="in each request")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--store", type=Path, help="an empty folder; else a temporary one")
    add_json_option(parser)
    chosen = begin(parser)
    catalogue = Registry(chosen.registry).open().catalogue
    label_ids = [catalogue[row].id for row in range(3)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.store or Path(temporary)
        disk = syncs_per_second(folder)
        place = folder / "store"
        with served(chosen.registry, f"--feedback={place}", "--feedback-texts") as service:
            requests = requests_of(label_ids, chosen.entries)
            load = run(saturate(service.port, requests, chosen.clients, chosen.seconds))
        with FeedbackStore(place) as store:
            stored = store.counts().entries
    acknowledged = load.statuses[200] * chosen.entries
    assert load.statuses.keys() == {200}, load.statuses
    assert stored == acknowledged, f"{acknowledged} were acknowledged, but {stored} are stored"
    table = Table({
        "clients": ".0f", "entries a request": ".0f", "acknowledged/s": ".0f", "p50, ms": ".1f",
        "p99, ms": ".1f", "fsyncs/s of the disk": ".0f", "load average": ".1f",
    })  # fmt: skip
    p50, p99 = (1e3 * load.percentile(200, percent) for percent in (50, 99))
    rate = acknowledged / load.seconds
    table.add(chosen.clients, chosen.entries, rate, p50, p99, disk, os.getloadavg()[0])
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


def requests_of(label_ids: list[str], num_entries: int) -> list[bytes]:
    """Return requests with so many entries each, each with an id and a text of its own."""

    def entry(number: int) -> dict[str, object]:
        text = f"Text {number}: duties on imports of olive oil. " * 10
        accepted, rejected = label_ids[:2], label_ids[2:]
        return {"id": f"{number}", "text": text, "accepted": accepted, "rejected": rejected}

    starts = range(0, _MAX_ENTRIES, num_entries)
    bodies = [{"entries": [entry(start + i) for i in range(num_entries)]} for start in starts]
    return [post("/v1/feedback", json.dumps(body).encode()) for body in bodies]


if __name__ == "__main__":
    main()
