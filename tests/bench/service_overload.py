"""Ten times the load that the service can bear: who is served, who is refused, and how soon.

    python tests/bench/service_overload.py REGISTRY [--seconds 60]

Requests begin at random times (a Poisson process), whatever becomes of those before. They come as
from a proxy: over 512 connections that stay open, and more where these are all busy; one of twenty
over a connection of its own. A probe uses a new one each time. Seconds are from when a request was
written to the first byte of its answer; how late the generator was in writing it is told apart. It
runs on the same machine, and takes its share.

Bars: answers keep their p99 under the time limit; all others are 429, 99 % of them within 50 ms;
probes answer within 100 ms; memory grows by less than 200 MiB; and 2 s after the overload the
service answers as fast as before. The machine's own speed changes by several percent within
minutes, so it is measured once more much later.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from load_generator import Load, at_rate, predict_requests, probe, run, saturate
from machine import begin
from recording import add_json_option, keep
from served_process import Served, served
from service_throughput import read_texts

CONNECTIONS = 32


async def overload(
    service: Served, requests: list[bytes], rate: float, seconds: float
) -> tuple[Load, Load, float]:
    """Return what came of the load, of probes meanwhile, and the most memory, in MiB."""
    most = service.memory_mib()

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, service.memory_mib())
            await asyncio.sleep(0.25)

    watching = asyncio.create_task(watch())
    load, probes = await asyncio.gather(
        at_rate(service.port, requests, rate, seconds, connections=512, fresh_share=0.05),
        probe(service.port, "/readyz", 0.05, seconds),
    )
    watching.cancel()
    return load, probes, most


def main() -> None:
    """Measure and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("--scorer", default="classifier")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--factor", type=float, default=10)
    parser.add_argument("--timeout", type=float, default=5.0, help="The service's time limit.")
    parser.add_argument("--rest", type=float, default=20, help="Seconds until the last look.")
    parser.add_argument("--options", nargs="*", default=[], help="Further options of serve.")
    add_json_option(parser)
    chosen = begin(parser)

    requests = predict_requests(read_texts("titles", 2000), scorer=chosen.scorer)
    with served(
        chosen.registry, "--request-timeout-s", str(chosen.timeout), *chosen.options
    ) as service:
        run(saturate(service.port, requests, CONNECTIONS, 2))
        before = run(saturate(service.port, requests, CONNECTIONS, 5))
        memory = service.memory_mib()
        rate = chosen.factor * before.rate
        load, probes, most = run(overload(service, requests, rate, chosen.seconds))
        run(asyncio.sleep(2))
        after = run(saturate(service.port, requests, CONNECTIONS, 5))
        run(asyncio.sleep(chosen.rest))
        later = run(saturate(service.port, requests, CONNECTIONS, 5))
    print(f"before: {before.rate:.1f}/s; offered {rate:.0f}/s for {chosen.seconds:.0f} s, sent "
          f"{load.sent_rate:.0f}/s over {load.connections} connections, late by p50 "
          f"{load.late(50) * 1e3:.1f} ms, p99 {load.late(99) * 1e3:.1f} ms")  # fmt: skip
    print(f"statuses {dict(load.statuses)}; answered {load.rate:.1f}/s")
    print(f"answers: p50 {load.percentile(200, 50):.2f} s, p99 {load.percentile(200, 99):.2f} s "
          f"(bar: {chosen.timeout} s)")  # fmt: skip
    print(f"429s: {_milliseconds(load, 429)} (bar: 50)")
    print(f"probes: {dict(probes.statuses)}, {_milliseconds(probes, 200)} (bar: 100)")
    print(f"memory: {memory:.0f} MiB before, at most {most:.0f} (bar: + 200)")
    usual = (before.rate + later.rate) / 2
    print(f"2 s after: {after.rate:.1f}/s, {after.rate / before.rate:.2f} of before (bar: 1); "
          f"{after.rate / usual:.2f} of the mean of before and {chosen.rest:.0f} s later "
          f"({later.rate:.1f}/s)")  # fmt: skip
    figures = {
        "texts a second before": before.rate,
        "texts a second offered": rate,
        "texts a second answered": load.rate,
        "p99 of answers, s": load.percentile(200, 99),
        "p99 of 429, ms": 1e3 * load.percentile(429, 99),
        "p99 of probes, ms": 1e3 * probes.percentile(200, 99),
        "memory before, MiB": memory,
        "memory at most, MiB": most,
        "texts a second 2 s after": after.rate,
        f"texts a second {chosen.rest:.0f} s later": later.rate,
    }
    rows = [{"what": name, "figure": value} for name, value in figures.items()]
    keep(chosen.json, {"overload": rows, "statuses": dict(load.statuses)})


def _milliseconds(load: Load, status: int) -> str:
    found = [load.percentile(status, percent) * 1e3 for percent in (50, 90, 99, 100)]
    return "p50 {:.1f} ms, p90 {:.1f}, p99 {:.1f}, most {:.1f}".format(*found)


if __name__ == "__main__":
    main()
