"""The worst case of every route: each thing that a client controls, at its limit and beyond.

    python tests/bench/worst_requests.py REGISTRY [--json FILE] [--only PATH]

The cases are made of the service's own OpenAPI document (`worst_cases.py`), each is sent to a
service of its own process. Meanwhile another process asks `/livez` again and again: the slowest of
these answers is the delay of the event loop, with what waits for the interpreter's lock. Memory is
the highest resident memory above that before. Bars: 100 ms, 64 MiB, and no answer of 5xx.
`tests/service/test_worst_requests.py` checks the same cases without a clock.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from multiprocessing.connection import Connection
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from machine import begin
from recording import Table, add_json_option, keep
from served_process import served
from worst_cases import Case, cases_of

from longtail.service.http.api_keys import make_key


def probe(port: int, pipe: Connection) -> None:
    """Ask whether the service lives, again and again; tell the slowest answer when asked."""
    slowest = 0.0
    while True:
        begin_s = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        connection.request("GET", "/livez")
        connection.getresponse().read()
        connection.close()
        slowest = max(slowest, time.perf_counter() - begin_s)
        if pipe.poll(0.002):
            if not pipe.recv():
                return
            pipe.send(slowest)
            slowest = 0.0


def ask(port: int, case: Case, headers: Mapping[str, str]) -> int | str:
    """Return the status of the answer to a case, or how the connection ended."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    body = None if case.make_body is None else case.make_body()
    target = quote(case.target, "/?&=%+")
    try:
        connection.request(case.method, target, body, {**headers, **case.headers})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except OSError as error:  # refused while it was being sent
        return type(error).__name__
    finally:
        connection.close()


def memory_mib(pid: int, name: str) -> float:
    """Return `VmRSS` or `VmHWM` of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(next(x for x in status.splitlines() if x.startswith(name)).split()[1]) / 1024


def measured(
    port: int, pid: int, pipe: Connection, case: Case, headers: Mapping[str, str]
) -> dict[str, Any]:
    """Return what a case costs."""
    pipe.send(True)
    pipe.recv()  # what was slowest before
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")  # begins VmHWM anew
    before, begin_s = memory_mib(pid, "VmRSS"), time.perf_counter()
    status = ask(port, case, headers)
    seconds = time.perf_counter() - begin_s
    pipe.send(True)
    return {
        "dimension": case.dimension,
        "status": status,
        "delay": pipe.recv(),
        "memory": memory_mib(pid, "VmHWM") - before,
        "seconds": seconds,
    }


def main() -> None:
    """Measure all cases and print the worst of each route."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("--only", default="", help="Operations whose name has this alone.")
    add_json_option(parser)
    chosen = begin(parser)
    key, entry = make_key("worst")
    headers = {"Authorization": f"Bearer {key}"}
    worst: dict[str, list[dict[str, Any]]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        served(chosen.registry, "--admin-keys", entry, "--feedback", folder) as service,
    ):
        with urllib.request.urlopen(f"http://127.0.0.1:{service.port}/openapi.json") as answer:
            document = json.load(answer)
        pipe, other = multiprocessing.Pipe()
        prober = multiprocessing.Process(target=probe, args=(service.port, other), daemon=True)
        prober.start()
        for case in cases_of(document):
            if chosen.only in case.operation:
                found = measured(service.port, service.pid, pipe, case, headers)
                worst.setdefault(case.operation, []).append(found)
        pipe.send(False)
    keep(chosen.json, {"routes": show(worst)})


def show(found: Mapping[str, list[dict[str, Any]]]) -> Table:
    """Print the worst of each route."""
    table = Table({
        "route": "", "cases": "", "delay, ms": ".0f", "of": "", "memory, MiB": ".0f",
        "of it": "", "time, s": ".1f", "of these": "", "5xx": "",
    })  # fmt: skip
    for operation, rows in found.items():
        delay, memory, seconds = (
            sorted(rows, key=itemgetter(name))[-1] for name in ("delay", "memory", "seconds")
        )
        failed = sum(isinstance(row["status"], int) and row["status"] >= 500 for row in rows)
        table.add(
            operation, len(rows), 1e3 * delay["delay"], delay["dimension"], memory["memory"],
            memory["dimension"], seconds["seconds"], seconds["dimension"], failed,
        )  # fmt: skip
    return table


if __name__ == "__main__":
    main()
