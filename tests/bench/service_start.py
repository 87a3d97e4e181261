"""Seconds from the command to the first answer, and what a service then holds of memory.

    python tests/bench/service_start.py REGISTRY [REGISTRY ...] [--times 5]

Each time is a new process over files that the system has in its cache. The first one is not
counted: it reads files into the cache of the disk.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import httpx
import numpy as np
from machine import begin
from recording import Table, add_json_option, keep
from served_process import served

from longtail.models.bundle.registry import Registry

TEXT = "Duties on imports of olive oil"


def start_once(registry: Path) -> tuple[float, float, float, float]:
    """Start a service, ask it once, and end it.

    Returns:
        Seconds until it was ready, seconds until it had answered, and its MiB then: all, and
        without pages of files.
    """
    started = time.monotonic()
    with served(registry) as service:
        ready = time.monotonic() - started
        url = f"http://127.0.0.1:{service.port}/v1/predict"
        httpx.post(url, json={"text": TEXT}).raise_for_status()
        answered = time.monotonic() - started
        return ready, answered, service.memory_mib(), service.own_memory_mib()


def main() -> None:
    """Start a service over each registry, again and again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registries", type=Path, nargs="+")
    parser.add_argument("--times", type=int, default=5)
    add_json_option(parser)
    options = begin(parser)
    table = Table({
        "labels": ",", "encoder": "", "ready after s, median": ".1f", "least": ".1f",
        "most": ".1f", "first answer after s": ".1f", "MiB": ",.0f",
        "not of files": ",.0f",
    })  # fmt: skip
    for registry in options.registries:
        manifest = Registry(registry).open().manifest
        _, *found = [start_once(registry) for _ in range(1 + options.times)]
        ready, answered, memory, own = np.array(found).T
        table.add(
            manifest.label_count,
            "yes" if manifest.encoder else "no",
            np.median(ready),
            ready.min(),
            ready.max(),
            np.median(answered),
            np.median(memory),
            np.median(own),
        )
    keep(options.json, {"starts": table})


if __name__ == "__main__":
    main()
