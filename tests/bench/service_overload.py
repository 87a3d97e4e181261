"""Ten times the load that the service can bear: who is served, who is refused, and how soon.

    python tests/bench/service_overload.py REGISTRY [--seconds 60]

Bars: answers keep their p99 under the time limit; all others are 429, 99 % of them within 50 ms;
probes answer within 100 ms; memory grows by less than 200 MiB; and 2 s after the overload the
service answers as fast as before.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from load_generator import Load, at_rate, predict_requests, probe, saturate
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
        at_rate(service.port, requests, rate, seconds),
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
    parser.add_argument("--options", nargs="*", default=[], help="Further options of serve.")
    chosen = parser.parse_args()

    requests = predict_requests(read_texts("titles", 2000), scorer=chosen.scorer)
    with served(
        chosen.registry, "--request-timeout-s", str(chosen.timeout), *chosen.options
    ) as service:
        asyncio.run(saturate(service.port, requests, CONNECTIONS, 2))
        before = asyncio.run(saturate(service.port, requests, CONNECTIONS, 5))
        memory = service.memory_mib()
        rate = chosen.factor * before.rate
        load, probes, most = asyncio.run(overload(service, requests, rate, chosen.seconds))
        asyncio.run(asyncio.sleep(2))
        after = asyncio.run(saturate(service.port, requests, CONNECTIONS, 5))
    refused = load.statuses[429]
    print(f"before: {before.rate:.1f}/s; offered {rate:.0f}/s for {chosen.seconds:.0f} s")
    print(f"statuses {dict(load.statuses)}; answered {load.rate:.1f}/s")
    print(f"answers: p50 {load.percentile(200, 50):.2f} s, p99 {load.percentile(200, 99):.2f} s "
          f"(bar: {chosen.timeout} s)")  # fmt: skip
    print(f"429s: {refused}, p99 {load.percentile(429, 99) * 1e3:.0f} ms (bar: 50)")
    print(f"probes: {dict(probes.statuses)}, p99 {probes.percentile(200, 99) * 1e3:.0f} ms, "
          f"most {probes.percentile(200, 100) * 1e3:.0f} ms (bar: 100)")  # fmt: skip
    print(f"memory: {memory:.0f} MiB before, at most {most:.0f} (bar: + 200)")
    print(f"2 s after: {after.rate:.1f}/s, {after.rate / before.rate:.2f} of before (bar: 1)")


if __name__ == "__main__":
    main()
