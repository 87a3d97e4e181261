"""Search among all labels over HTTP, as an annotator types: milliseconds, and the service's share.

    python tests/bench/label_search.py REGISTRY --requests 2000

Queries are the beginnings (2 to 20 characters) of the names of labels drawn at random, one request
after the other over one connection. Beside them the same number of requests to `/livez`, which
shows what HTTP itself, and the machine's other work, take.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import time
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
from machine import begin
from recording import Table, add_json_option, keep
from served_process import served

MOST_CHARACTERS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("--requests", type=int, default=2000)
    add_json_option(parser)
    chosen = begin(parser)
    with served(chosen.registry, timeout_s=600) as service:
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
        total, names = names_of(connection)
        print(f"{total:,} labels\n")
        queries = typed(names, chosen.requests)
        table = Table({"asked for": "", "p50, ms": ".2f", "p99, ms": ".2f", "most, ms": ".2f"})
        for what, paths in (
            ("GET /v1/labels?query=", [f"/v1/labels?{urlencode({'query': q})}" for q in queries]),
            (
                "GET /label-studio/labels?query=",
                [f"/label-studio/labels?{urlencode({'query': q})}" for q in queries],
            ),
            ("GET /livez", ["/livez"] * chosen.requests),
        ):
            taken = measure(connection, paths)
            table.add(what, *np.percentile(taken, [50, 99]), max(taken))
    keep(chosen.json, {"search": table.to_json()}, seeds=[0])


def names_of(connection: http.client.HTTPConnection) -> tuple[int, list[str]]:
    """Return how many labels there are, and names of some, from all over the catalogue."""
    total: int = ask(connection, "/v1/labels?limit=1")["total"]
    draws = random.Random(0)  # noqa: S311
    names: list[str] = []
    for _ in range(20):
        offset = draws.randrange(max(1, total - 100))
        page = ask(connection, f"/v1/labels?limit=100&offset={offset}")
        names += [label["name"] for label in page["labels"]]
    return total, names


def typed(names: list[str], count: int) -> list[str]:
    """Return beginnings of names."""
    draws = random.Random(1)  # noqa: S311
    return [draws.choice(names)[: draws.randint(2, MOST_CHARACTERS)] for _ in range(count)]


def ask(connection: http.client.HTTPConnection, path: str) -> dict[str, object]:
    """Return the answer to a request."""
    connection.request("GET", path)
    answer = connection.getresponse()
    content = answer.read()
    assert answer.status == 200, content
    found: dict[str, object] = json.loads(content)
    return found


def measure(connection: http.client.HTTPConnection, paths: list[str]) -> list[float]:
    """Return the milliseconds of each request, after one that makes what is made once."""
    ask(connection, paths[0])
    taken = []
    for path in paths:
        started = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        taken.append(1000 * (time.perf_counter() - started))
        assert answer.status == 200
    return taken


if __name__ == "__main__":
    main()
