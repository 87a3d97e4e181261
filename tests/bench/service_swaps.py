"""Many swaps between two versions under full load: failures, mixed answers, memory and latency.

    python tests/bench/service_swaps.py REGISTRY [--swaps 200]

The two versions are copies of the registry's current one whose label ids begin with `v1:` and
`v2:`, so that a label tells which version it came from. Clients ask for one text, for several at a
time, and for streams of lines, each again as soon as it is answered.

Bars: no failed request; no answer of two versions, and none that names another version than its
labels; memory after the last swap within 5 % of that after the first fifth of them; p99 of single
texts during the swaps at most twice that without.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import numpy as np
from load_generator import demo_titles
from machine import begin
from recording import add_json_option, keep
from served_process import Served, served

from longtail.models.bundle.bundle import LABELS_NAME, Bundle, write_bundle
from longtail.models.bundle.manifest import Manifest
from longtail.models.bundle.registry import Registry
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.service.http.api_keys import make_key

LINES_A_STREAM = 50
TEXTS_A_REQUEST = 8


@dataclass
class Tally:
    """What the clients saw.

    Attributes:
        answers: By kind of client.
        failures: By kind of client and what went wrong.
        num_mixed: Answers whose labels are not all of the version that they name.
        seconds: Seconds of every single text, with the time at which it was answered.
    """

    answers: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    num_mixed: int = 0
    seconds: list[tuple[float, float]] = field(default_factory=list)

    def check(self, kind: str, version: int, results: list[dict[str, object]]) -> None:
        """Take one answer, and note whether it is of one version."""
        self.answers[kind] += 1
        found = {label["id"].partition(":")[0] for result in results for label in result["labels"]}
        if found != {f"v{version}"}:
            self.num_mixed += 1

    def percentile_ms(self, percent: float, begin: float, end: float) -> float:
        """Return a percentile of what single texts took between two times."""
        found = [seconds for at, seconds in self.seconds if begin <= at < end]
        return 1000 * float(np.percentile(found, percent)) if found else float("nan")


class Clients:
    """All that ask, until they are stopped."""

    def __init__(self, port: int, texts: list[str], scorers: list[str]) -> None:
        self.tally = Tally()
        self._texts = texts
        self._scorers = scorers
        self._is_over = False
        limits = httpx.Limits(max_connections=None)
        self._http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=60, limits=limits
        )

    async def run(self, singles: int, batches: int, streams: int) -> None:
        """Ask until `stop` is called."""
        kinds = [self._single] * singles + [self._several] * batches + [self._stream] * streams
        await asyncio.gather(*(self._repeat(kind, number) for number, kind in enumerate(kinds)))
        await self._http.aclose()

    def stop(self) -> None:
        """Let every client end its last request."""
        self._is_over = True

    async def _repeat(self, ask: object, number: int) -> None:
        turn = number
        while not self._is_over:
            turn += 1
            try:
                await ask(turn)  # type: ignore[operator]
            except (httpx.HTTPError, ValueError, KeyError) as error:
                self.tally.failures[f"{ask.__name__} {type(error).__name__}"] += 1  # type: ignore[attr-defined]

    def _options(self, turn: int) -> dict[str, object]:
        """Return what is asked for, of one scorer after the other."""
        named = {"scorer": self._scorers[turn % len(self._scorers)]} if self._scorers else {}
        return {"k": 5} | named

    def _chosen(self, turn: int, count: int) -> list[str]:
        return [self._texts[(turn * count + i) % len(self._texts)] for i in range(count)]

    async def _single(self, turn: int) -> None:
        started = time.perf_counter()
        await self._ask("single", {"text": self._chosen(turn, 1)[0]} | self._options(turn))
        ended = time.perf_counter()
        self.tally.seconds.append((ended, ended - started))

    async def _several(self, turn: int) -> None:
        texts = self._chosen(turn, TEXTS_A_REQUEST)
        await self._ask("several", {"texts": texts} | self._options(turn))

    async def _ask(self, kind: str, body: dict[str, object]) -> None:
        answer = await self._http.post("/v1/predict", json=body)
        if answer.status_code != 200:
            self.tally.failures[f"{kind} {answer.status_code}"] += 1
            return
        content = answer.json()
        self.tally.check(kind, content["model"]["version"], content["results"])

    async def _stream(self, turn: int) -> None:
        texts = self._chosen(turn, LINES_A_STREAM)
        lines = [{"text": text} | self._options(turn + i) for i, text in enumerate(texts)]
        body = "".join(json.dumps(line) + "\n" for line in lines)
        headers = {"Content-Type": "application/x-ndjson"}
        answer = await self._http.post("/v1/batch", content=body, headers=headers)
        *found, last = map(json.loads, answer.text.splitlines())
        if answer.status_code != 200 or not last["summary"]["complete"]:
            self.tally.failures[f"stream {answer.status_code}"] += 1
        for line in found:
            if "error" in line:
                self.tally.failures[f"line {line['error']['status']}"] += 1
            else:
                self.tally.check("line", line["version"], [line])


def make_versions(source: Bundle, registry: Registry) -> None:
    """Publish two versions of a bundle that differ in the ids of their labels."""
    names = [name for name in source.manifest.files if not name.startswith("encoder/")]
    for version in (1, 2):
        labels = LabelCatalogue(
            replace(label, id=f"v{version}:{label.id}") for label in source.catalogue
        )

        def write(folder: Path, labels: LabelCatalogue = labels) -> Manifest:
            return write_bundle(
                folder,
                manifest=source.manifest,
                catalogue=labels,
                tensors={
                    name: source.tensors(name) for name in names if name.endswith(".safetensors")
                },
                texts={
                    name: source.text(name)
                    for name in names
                    if name != LABELS_NAME and not name.endswith(".safetensors")
                },
                encoder_folder=source.encoder_folder if source.manifest.encoder else None,
            )

        registry.publish(write, activate=version == 1)


async def swap(
    service: Served, key: str, clients: Clients, chosen: argparse.Namespace
) -> tuple[list[float], list[float], tuple[float, float, float]]:
    """Swap again and again.

    Returns:
        Seconds of each swap; memory in MiB before, and after each; when swapping began, ended, and
        the time without swaps began again after it.
    """
    swaps, without_s = chosen.swaps, chosen.without
    await asyncio.sleep(chosen.warm_up)
    unswapped = service.memory_mib()
    await asyncio.sleep(without_s)
    memory, taken = [service.memory_mib()], []
    print(f"memory without swaps: + {memory[0] - unswapped:.0f} MiB in {without_s:.0f} s")
    headers = {"Authorization": f"Bearer {key}"}
    base = f"http://127.0.0.1:{service.port}"
    async with httpx.AsyncClient(base_url=base, headers=headers, timeout=600) as http:
        began = time.perf_counter()
        for number in range(swaps):
            answer = await http.post(f"/v1/admin/models/{2 - number % 2}/activate")
            assert answer.status_code == 200, answer.text
            taken.append(answer.json()["seconds"])
            await until_freed(http)
            memory.append(service.memory_mib())
        ended = time.perf_counter()
    await asyncio.sleep(1)
    again, unswapped = time.perf_counter(), service.memory_mib()
    await asyncio.sleep(without_s)
    print(f"and after them: + {service.memory_mib() - unswapped:.0f} MiB in {without_s:.0f} s")
    clients.stop()
    return taken, memory, (began, ended, again)


async def until_freed(http: httpx.AsyncClient) -> None:
    """Wait until no request holds an old model any more.

    Raises:
        TimeoutError: One still does after 30 s.
    """
    for _ in range(300):
        if "longtail_model_draining{" not in (await http.get("/metrics")).text:
            return
        await asyncio.sleep(0.1)
    raise TimeoutError("an old model is not freed")


async def measure(service: Served, key: str, chosen: argparse.Namespace) -> None:
    """Load the service, swap, and print what came of it."""
    texts = demo_titles(2000)
    clients = Clients(service.port, texts, chosen.scorers)
    started = time.perf_counter()
    load = asyncio.create_task(clients.run(chosen.singles, chosen.batches, chosen.streams))
    taken, memory, (began, ended, again) = await swap(service, key, clients, chosen)
    await load
    over, tally = time.perf_counter(), clients.tally
    p99 = tally.percentile_ms(99, began, ended)
    before = tally.percentile_ms(99, started + chosen.warm_up, began)
    after = tally.percentile_ms(99, again, over)
    without = min(before, after)
    fifth = memory[max(1, len(taken) // 5)]
    print(f"{len(taken)} swaps in {ended - began:.1f} s, median {np.median(taken):.2f} s each")
    print(f"answers: {dict(tally.answers)}")
    print(f"failures: {dict(tally.failures)} (bar: none)")
    print(f"answers of mixed versions: {tally.num_mixed} (bar: 0)")
    print(
        f"memory in MiB: {memory[0]:.0f} before, {memory[1]:.0f} after the first, {fifth:.0f} "
        f"after a fifth, {max(memory):.0f} at most, {memory[-1]:.0f} after the last, "
        f"{memory[-1] / fifth:.2f} of that after a fifth (bar: 1.05)"
    )
    print(
        f"single texts: p50 {tally.percentile_ms(50, began, ended):.1f} ms, p99 {p99:.1f} ms "
        f"during the swaps; p99 without {before:.1f} ms before and {after:.1f} ms after: "
        f"{p99 / without:.2f} times the smaller (bar: 2)"
    )
    figures = {
        "swaps": len(taken),
        "median of a swap, s": float(np.median(taken)),
        "answers": sum(tally.answers.values()),
        "failures": sum(tally.failures.values()),
        "answers of mixed versions": tally.num_mixed,
        "memory after a fifth, MiB": fifth,
        "memory at most, MiB": max(memory),
        "memory after the last, MiB": memory[-1],
        "p99 of single texts, ms": p99,
        "p99 without swaps, ms": without,
    }
    keep(chosen.json, {"swaps": [{"what": k, "figure": v} for k, v in figures.items()]})


def main() -> None:
    """Make two versions, serve them, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("--scorers", nargs="*", default=[], help="Asked for by turns.")
    parser.add_argument("--swaps", type=int, default=200)
    parser.add_argument("--without", type=float, default=30, help="Seconds without swaps.")
    parser.add_argument(
        "--warm-up", type=float, default=300, help="Seconds until caches of shapes are full."
    )
    parser.add_argument("--singles", type=int, default=8)
    parser.add_argument("--batches", type=int, default=2)
    parser.add_argument("--streams", type=int, default=2)
    parser.add_argument("--options", nargs="*", default=[], help="Further options of serve.")
    add_json_option(parser)
    chosen = begin(parser)
    key, entry = make_key("bench")
    with tempfile.TemporaryDirectory() as folder:
        registry = Registry(Path(folder) / "registry")
        make_versions(Registry(chosen.registry).open(), registry)
        options = ("--admin-keys", entry, "--watch-interval-s", "0", *chosen.options)
        with served(registry.folder, *options) as service:
            asyncio.run(measure(service, key, chosen))


if __name__ == "__main__":
    main()
