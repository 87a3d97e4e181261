"""An hour of full load with faults: does anything grow, and does every request have one outcome?

    python tests/bench/soak.py REGISTRY [--minutes 60] [--json docs/results/soak.json]

Clients ask for single texts, for several at a time and for streams, each again as soon as it is
answered. Meanwhile two versions of the registry's current model are swapped, strangers send
requests without a word, broken bodies, half requests and hang up, compute threads are killed, the
wall clock jumps by a day, and the disk of the registry fills up during a swap (on Linux as root,
where it is a tmpfs; else this fault is left out and the result says so).

Bars, the last sixth of the time against the second sixth: memory at most 1.05 times, as many
descriptors and threads, p99 of single texts at most 1.5 times. Every request has exactly one
outcome; one fails, a stranger's too, only where the thread that computed it was killed; and
`/readyz` says what a plain request finds.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from load_generator import Connection, demo_titles, post
from machine import begin
from recording import add_json_option, keep
from served_process import Served, free_port, wait_until_ready
from service_swaps import make_versions

from longtail.models.bundle.registry import Registry
from longtail.service.http.api_keys import make_key

SWAP_EVERY_S, KILL_EVERY_S, CLOCK_EVERY_S, FILL_EVERY_S = 20.0, 45.0, 75.0, 300.0
KILL_GRACE_S = 2.0
"""Seconds after a kill in which the requests of that thread may fail."""
WINDOW_S = 10.0
LINES_A_STREAM = 30
HOSTILE = (
    b'{"text": "!"}', b'{"text": "x", "scorer": "sparse"}', '{"text": "好"}'.encode(), b"",
    b'{"text": ""}', b"[" * 20_000, b'{"text": "a", "k": 1e999}', b'{"text": "a", "timeout_s": 0}',
    b'{"text": "\\ud800"}', b"\xff\xfe", b'{"texts": []}', b'{"text": "a", "scorer": "nope"}',
    b'{"text": "' + b"word " * 5000 + b'"}', b'{"text": "a", "include": ["nope"]}',
)  # fmt: skip

FIGURES = {
    "memory_mib": "resident memory, MiB",
    "descriptors": "open descriptors",
    "threads": "threads",
    "p50_ms": "single texts, p50, ms",
    "p99_ms": "single texts, p99, ms",
    "answers_a_second": "single texts answered a second",
}
"""Figures of a window, with their descriptions."""


@dataclass
class Window:
    """What was seen in some seconds: gauges at their end, and what was answered meanwhile."""

    minute: float
    memory_mib: float
    descriptors: int
    threads: int
    answers_a_second: float = 0.0
    p50_ms: float = float("nan")
    p99_ms: float = float("nan")


@dataclass
class Tally:
    """Requests begun and what became of them.

    Attributes:
        begun: Requests sent, by kind.
        outcomes: What came of them, by kind and outcome: a status, or `closed`.
        strays: Answers that nobody had asked for.
        excused: Failures shortly after a kill.
        failures: All others.
        latencies: Seconds of each answered single text, and when it was answered.
    """

    begun: Counter[str] = field(default_factory=Counter)
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    strays: int = 0
    excused: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    latencies: list[tuple[float, float]] = field(default_factory=list)
    killed_at: float = float("-inf")

    def note(self, kind: str, outcome: str) -> None:
        """Take the outcome of a request."""
        self.outcomes.setdefault(kind, Counter())[outcome] += 1

    def note_good(self, kind: str, status: int) -> None:
        """Take the outcome of a request that should be answered."""
        self.note(kind, str(status or "closed"))
        if status != 200:
            (self.excused if self._was_killed(status) else self.failures)[f"{kind} {status}"] += 1

    def note_hostile(self, status: int) -> None:
        """Take the outcome of a stranger's request, which may be refused but not fail."""
        self.note("hostile", str(status or "closed"))
        if status >= 500 or not status:
            (self.excused if self._was_killed(status) else self.failures)[f"hostile {status}"] += 1

    def _was_killed(self, status: int) -> bool:
        return status == 500 and time.perf_counter() < self.killed_at + KILL_GRACE_S

    def percentiles_ms(self, begin: float, end: float) -> tuple[float, float, int]:
        """Return p50 and p99 of single texts between two times, and how many there were."""
        found = [seconds for at, seconds in self.latencies if begin <= at < end]
        if not found:
            return float("nan"), float("nan"), 0
        p50, p99 = 1000 * np.percentile(found, [50, 99])
        return float(p50), float(p99), len(found)


class OneAnswer(Connection):
    """A connection that counts what comes without having been asked for."""

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self._tally = tally

    def data_received(self, data: bytes) -> None:
        if self._on_answer is None:
            self._tally.strays += 1
        super().data_received(data)


class Faults:
    """Does harm to the service, and remembers how often."""

    def __init__(self, process: subprocess.Popen[str], tally: Tally, disk: Path | None) -> None:
        self.counts: Counter[str] = Counter()
        self._process, self._tally, self._disk = process, tally, disk
        self._days = itertools.cycle([86_400, -86_400, 0])

    @property
    def has_disk(self) -> bool:
        """Whether there is a disk that may be filled."""
        return self._disk is not None

    async def kill_thread(self) -> None:
        self._tally.killed_at = time.perf_counter()
        self._command("kill")
        self.counts["compute threads killed"] += 1

    async def move_clock(self) -> None:
        self._command(f"clock {next(self._days)}")
        self.counts["jumps of the clock"] += 1

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Leave no byte on the registry's disk as long as the context lasts."""
        assert self._disk is not None
        path = self._disk / "filler"
        with path.open("wb", buffering=0) as file:
            for size in (2**20, 2**12, 1):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue
        self.counts["full disks"] += 1
        try:
            yield
        finally:
            path.unlink()

    def _command(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


class Soak:
    """All clients, faults and measurements of one run."""

    def __init__(
        self, service: Served, faults: Faults, tally: Tally, key: str, seconds: float
    ) -> None:
        self._service, self._faults, self._tally = service, faults, tally
        self._texts = demo_titles(2000)
        self._started = time.perf_counter()
        self._end = self._started + seconds
        self._turns = itertools.count()
        self._swaps: Counter[str] = Counter()
        headers = {"Authorization": f"Bearer {key}"}
        base = f"http://127.0.0.1:{service.port}"
        self._http = httpx.AsyncClient(base_url=base, headers=headers, timeout=120)
        self.windows: list[Window] = []
        self.ready: Counter[str] = Counter()

    @property
    def swaps(self) -> dict[str, int]:
        """Swaps by what came of them."""
        return dict(self._swaps)

    async def run(self, singles: int, several: int, streams: int, strangers: int) -> None:
        """Do all of it at once until the time is over."""
        tasks = [self._single() for _ in range(singles)]
        tasks += [self._several() for _ in range(several)]
        tasks += [self._stream() for _ in range(streams)]
        tasks += [self._stranger(number) for number in range(strangers)]
        tasks += [
            self._every(SWAP_EVERY_S, self._swap),
            self._every(KILL_EVERY_S, self._faults.kill_thread),
            self._every(CLOCK_EVERY_S, self._faults.move_clock),
            self._every(FILL_EVERY_S, self._swap_on_a_full_disk),
            self._every(WINDOW_S, self._measure),
            self._every(1.0, self._look_whether_ready),
        ]
        await asyncio.gather(*tasks)
        await self._http.aclose()

    async def _every(self, seconds: float, do: Callable[[], Awaitable[None]]) -> None:
        due = self._started + seconds
        while due < self._end:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await do()
            due += seconds

    def _text(self) -> str:
        return self._texts[next(self._turns) % len(self._texts)]

    async def _single(self) -> None:
        await self._ask_on("single", lambda: {"text": self._text(), "k": 5})

    async def _several(self) -> None:
        await self._ask_on("several", lambda: {"texts": [self._text() for _ in range(8)]})

    async def _ask_on(self, kind: str, make_body: Callable[[], dict[str, object]]) -> None:
        connection = None
        while time.perf_counter() < self._end:
            if connection is None or not connection.is_open:
                connection = await self._connect()
            request = post("/v1/predict", json.dumps(make_body()).encode())
            status, seconds = await self._ask(connection, kind, request)
            self._tally.note_good(kind, status)
            if kind == "single" and status == 200:
                self._tally.latencies.append((time.perf_counter(), seconds))

    async def _ask(self, connection: OneAnswer, kind: str, request: bytes) -> tuple[int, float]:
        future: asyncio.Future[tuple[int, float]] = asyncio.get_running_loop().create_future()

        def on_answer(_: Connection, status: int, seconds: float) -> None:
            future.set_result((status, seconds))  # a second answer would raise

        self._tally.begun[kind] += 1
        connection.ask(request, on_answer)
        return await future

    async def _connect(self) -> OneAnswer:
        loop = asyncio.get_running_loop()
        port = self._service.port
        _, connection = await loop.create_connection(
            lambda: OneAnswer(self._tally), "127.0.0.1", port
        )
        return connection

    async def _stream(self) -> None:
        headers = {"Content-Type": "application/x-ndjson"}
        while time.perf_counter() < self._end:
            lines = [json.dumps({"text": self._text()}) for _ in range(LINES_A_STREAM)]
            self._tally.begun["stream"] += 1
            try:
                answer = await self._http.post(
                    "/v1/batch", content="\n".join(lines), headers=headers
                )
            except httpx.HTTPError:
                self._tally.note_good("stream", 0)
                continue
            self._tally.note_good("stream", self._status_of(answer))

    @staticmethod
    def _status_of(answer: httpx.Response) -> int:
        """Return the worst status of a stream and its lines; 0 where it is not whole."""
        if answer.status_code != 200:
            return answer.status_code
        *found, last = map(json.loads, answer.text.splitlines())
        if not last["summary"]["complete"] or len(found) != LINES_A_STREAM:
            return 0
        return max([line["error"]["status"] for line in found if "error" in line], default=200)

    async def _stranger(self, number: int) -> None:
        kinds = itertools.cycle([self._send_hostile, self._hang_up, self._send_half])
        bodies = itertools.cycle(HOSTILE[number % len(HOSTILE) :] + HOSTILE)
        while time.perf_counter() < self._end:
            await next(kinds)(next(bodies))
            await asyncio.sleep(0.2)

    async def _send_hostile(self, body: bytes) -> None:
        connection = await self._connect()
        status, _ = await self._ask(connection, "hostile", post("/v1/predict", body))
        self._tally.note_hostile(status)
        connection.close()

    async def _hang_up(self, body: bytes) -> None:
        """Send a part of a body and go."""
        _, writer = await asyncio.open_connection("127.0.0.1", self._service.port)
        request = post("/v1/predict", body + b" " * 100)
        self._tally.begun["hang-up"] += 1
        writer.write(request[:-50])
        await writer.drain()
        writer.transport.abort()
        self._tally.note("hang-up", "closed")

    async def _send_half(self, body: bytes) -> None:
        """Send a part of a head and wait a while."""
        _, writer = await asyncio.open_connection("127.0.0.1", self._service.port)
        self._tally.begun["half"] += 1
        writer.write(post("/v1/predict", body)[:30])
        await writer.drain()
        await asyncio.sleep(1)
        writer.close()
        self._tally.note("half", "closed")

    async def _swap(self) -> None:
        version = 2 - self._swaps["done"] % 2
        answer = await self._http.post(f"/v1/admin/models/{version}/activate")
        self._swaps["done" if answer.status_code == 200 else str(answer.status_code)] += 1

    async def _swap_on_a_full_disk(self) -> None:
        if not self._faults.has_disk:
            return
        with self._faults.full_disk():
            version = 2 - self._swaps["done"] % 2
            answer = await self._http.post(f"/v1/admin/models/{version}/activate")
            self._swaps[f"on a full disk: {answer.status_code}"] += 1
            if answer.status_code == 200:
                self._swaps["done"] += 1

    async def _look_whether_ready(self) -> None:
        """Ask `/readyz` and a plain request, and note whether they agree."""
        ready = await self._http.get("/readyz")
        plain = await self._http.post("/v1/predict", json={"text": self._texts[0]})
        just_killed = time.perf_counter() < self._tally.killed_at + KILL_GRACE_S
        told = "ready" if ready.status_code == 200 else "not ready"
        found = "answered" if plain.status_code == 200 else f"{plain.status_code}"
        self.ready[f"{told}, {found}{', just after a kill' if just_killed else ''}"] += 1

    async def _measure(self) -> None:
        now = time.perf_counter()
        process = Path(f"/proc/{self._service.pid}")
        p50, p99, count = self._tally.percentiles_ms(now - WINDOW_S, now)
        window = Window(
            minute=round((now - self._started) / 60, 2),
            memory_mib=round(self._service.memory_mib(), 1),
            descriptors=len(os.listdir(process / "fd")),  # noqa: PTH208
            threads=len(os.listdir(process / "task")),  # noqa: PTH208
            answers_a_second=round(count / WINDOW_S, 1),
            p50_ms=round(p50, 1),
            p99_ms=round(p99, 1),
        )
        self.windows.append(window)
        print(window, dict(self._tally.failures), file=sys.stderr, flush=True)


def sixth(windows: Sequence[Window], number: int) -> list[Window]:
    """Return the windows of one sixth of the time."""
    size = max(1, len(windows) // 6)
    return list(windows[number * size : (number + 1) * size])


def median(windows: Sequence[Window], name: str) -> float:
    """Return the median of a figure over windows."""
    return float(np.median([getattr(window, name) for window in windows]))


def summary(soak: Soak, tally: Tally, faults: Faults, seconds: float) -> dict[str, Any]:
    """Return what came of it, with each bar and whether it was met."""
    early, late = sixth(soak.windows, 1), sixth(soak.windows, 5)
    flat = {name: [median(early, name), median(late, name)] for name in FIGURES}
    outcomes = {kind: dict(found) for kind, found in tally.outcomes.items()}
    answered = {kind: sum(found.values()) for kind, found in outcomes.items()}
    untrue = [told for told in soak.ready if told not in TRUE]
    bars = {
        "memory at most 1.05 times": flat["memory_mib"][1] <= 1.05 * flat["memory_mib"][0],
        "no more descriptors": flat["descriptors"][1] <= flat["descriptors"][0] + 8,
        "as many threads": abs(flat["threads"][1] - flat["threads"][0]) <= 1,
        "p99 at most 1.5 times": flat["p99_ms"][1] <= 1.5 * flat["p99_ms"][0],
        "one outcome each": dict(tally.begun) == answered and not tally.strays,
        "requests fail only just after a kill": not tally.failures,
        "readiness is true": not untrue,
    }
    times = dict(faults.counts) | {f"swaps: {name}": n for name, n in soak.swaps.items()}
    failed = sorted({*tally.excused, *tally.failures})
    return {
        "seconds": round(seconds),
        "python": platform.python_version(),
        "flat": [
            {
                "": title,
                "second sixth": flat[name][0],
                "last sixth": flat[name][1],
                "ratio": round(flat[name][1] / flat[name][0], 3),
            }
            for name, title in FIGURES.items()
        ],
        "faults": [{"fault": name, "times": count} for name, count in times.items()],
        "outcomes": [
            {"requests": kind, "begun": count, **outcomes.get(kind, {})}
            for kind, count in tally.begun.items()
        ],
        "failures": [
            {
                "failed requests": name,
                f"within {KILL_GRACE_S:g} s of a kill": tally.excused[name],
                "else": tally.failures[name],
            }
            for name in failed
        ],
        "readiness": [
            {"`/readyz`, and a plain request, each second": name, "times": count}
            for name, count in soak.ready.items()
        ],
        "bars": [{"bar": name, "met": bool(is_met)} for name, is_met in bars.items()],
        "windows": [asdict(window) for window in soak.windows],
    }


TRUE = {
    "ready, answered", "not ready, 503", "ready, answered, just after a kill",
    "ready, 500, just after a kill", "not ready, 503, just after a kill",
    "not ready, 500, just after a kill", "not ready, answered, just after a kill",
}  # fmt: skip
"""What `/readyz` may say, and a plain request find, in the same moment."""


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path | None]:
    """Mount a small disk on a folder.

    Yields:
        The folder; None where that is not allowed.
    """
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # noqa: S607


@contextmanager
def faulty_service(registry: Path, *options: str) -> Iterator[tuple[Served, Any]]:
    """Start the service that takes faults, and end it at last.

    Yields:
        What to talk to, and the process.
    """
    port = free_port()
    script = str(Path(__file__).with_name("faulty_service.py"))
    command = [sys.executable, script, "serve", "--log-level", "error", "--drain-delay-s", "0"]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [*command, "--registry", str(registry), "--port", str(port), *options],
        env=environ, stdin=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_until_ready(process, port, timeout_s=120)
        yield Served(port, process.pid), process
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Make two versions, serve them, do harm, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--singles", type=int, default=8)
    parser.add_argument("--several", type=int, default=2)
    parser.add_argument("--streams", type=int, default=2)
    parser.add_argument("--strangers", type=int, default=4)
    add_json_option(parser)
    chosen = begin(parser)
    key, entry = make_key("soak")
    source = Registry(chosen.registry).open()
    size = sum(info.size_bytes for info in source.manifest.files.values())
    tally, seconds = Tally(), 60 * chosen.minutes
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        disk = stack.enter_context(small_disk(folder, 4 * size + 2**26))
        registry = Registry(folder / "registry")
        make_versions(source, registry)
        options = ("--admin-keys", entry, "--watch-interval-s", "0")
        service, process = stack.enter_context(faulty_service(registry.folder, *options))
        faults = Faults(process, tally, disk)
        soak = Soak(service, faults, tally, key, seconds)
        asyncio.run(soak.run(chosen.singles, chosen.several, chosen.streams, chosen.strangers))
        if disk is None:
            shutil.rmtree(registry.folder)
    figures = summary(soak, tally, faults, seconds)
    print(json.dumps({name: x for name, x in figures.items() if name != "windows"}, indent=2))
    keep(chosen.json, figures)
    sys.exit(not all(bar["met"] for bar in figures["bars"]))


if __name__ == "__main__":
    main()
