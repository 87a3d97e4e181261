"""A small load generator: raw HTTP/1.1 over asyncio protocols; it takes little of the machine.

Closed loop (`saturate`): each connection asks again as soon as it is answered. Open loop
(`at_rate`): requests begin at random times whether or not others are answered, so that waiting is
seen in the latencies; where all connections are busy, one more is opened. The seconds of an answer
are from the moment when its request was handed to the system up to the answer's first byte.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar, cast

import numpy as np
import uvloop

T = TypeVar("T")


@dataclass
class Load:
    """What came of some load.

    Attributes:
        statuses: Answers by status; 0: none.
        latencies: Seconds of every answer, by status.
        connections: That were opened.
        seconds: From the first request to the last answer.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    latencies: dict[int, list[float]] = field(default_factory=dict)
    connections: int = 0
    seconds: float = 0.0

    def note(self, status: int, seconds: float) -> None:
        self.statuses[status] += 1
        self.latencies.setdefault(status, []).append(seconds)

    def percentile(self, status: int, percent: float) -> float:
        """Return a percentile of the seconds of the answers of a status; nan without any."""
        found = self.latencies.get(status)
        return float(np.percentile(found, percent)) if found else float("nan")

    @property
    def rate(self) -> float:
        """Good answers a second."""
        return self.statuses[200] / self.seconds


class Connection(asyncio.Protocol):
    """One connection; asks one thing at a time."""

    def __init__(self) -> None:
        self._on_answer: Callable[[Connection, int, float], None] | None = None
        self._received = b""
        self._sent_at = self._answered_at = 0.0
        self.is_open = False

    def ask(self, request: bytes, on_answer: Callable[[Connection, int, float], None]) -> None:
        """Send a request; the callback gets this connection, the status, and the seconds."""
        self._on_answer, self._received, self._answered_at = on_answer, b"", 0.0
        self._sent_at = time.perf_counter()
        self._transport.write(request)

    def close(self) -> None:
        self.is_open = False
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not of its class
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if not self._answered_at:
            self._answered_at = time.perf_counter()
        self._received += data
        end = self._received.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        head = self._received[:end].lower()
        length = head.index(b"content-length:") + 15
        if len(self._received) < end + int(head[length : head.index(b"\r", length)]):
            return
        if b"connection: close" in head:
            self.close()
        self._finish(int(head[9:12]), self._answered_at - self._sent_at)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        self._finish(0, time.perf_counter() - self._sent_at)

    def _finish(self, status: int, seconds: float) -> None:
        on_answer, self._on_answer = self._on_answer, None
        if on_answer is not None:
            on_answer(self, status, seconds)


class Pool:
    """Connections to one server."""

    def __init__(self, port: int, load: Load, on_free: Callable[[Connection], None]) -> None:
        self._port, self._load, self._on_free = port, load, on_free
        self._free: list[Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.num_waiting = 0

    def ask(self, request: bytes) -> None:
        """Send a request over a free connection, or a new one."""
        self.num_waiting += 1
        while self._free:
            connection = self._free.pop()
            if connection.is_open:
                connection.ask(request, self._take_answer)
                return
        task = asyncio.get_running_loop().create_task(self._dial(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def open(self, count: int) -> None:
        """Open connections in advance."""
        for _ in range(count):
            self._free.append(await self._connect())

    async def drain(self, timeout_s: float) -> None:
        """Wait until all is answered; what is not in time is status 0."""
        deadline = time.perf_counter() + timeout_s
        while self.num_waiting and time.perf_counter() < deadline:  # noqa: ASYNC110  # never set
            await asyncio.sleep(0.01)
        for _ in range(self.num_waiting):
            self._load.note(0, timeout_s)
        for task in self._tasks:
            task.cancel()
        for connection in self._free:
            connection.close()

    async def _dial(self, request: bytes) -> None:
        begun = time.perf_counter()
        try:
            connection = await self._connect()
        except OSError:
            self.num_waiting -= 1
            self._load.note(0, time.perf_counter() - begun)
            return
        # To connect is to wait for the service, too.
        waited = time.perf_counter() - begun
        connection.ask(request, lambda c, status, s: self._take_answer(c, status, s + waited))

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, "127.0.0.1", self._port)
        self._load.connections += 1
        return connection

    def _take_answer(self, connection: Connection, status: int, seconds: float) -> None:
        self.num_waiting -= 1
        self._load.note(status, seconds)
        if connection.is_open:
            self._free.append(connection)
        self._on_free(connection)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine on the fastest event loop that there is.

    Python's searches for garbage are off meanwhile: with a model's libraries in this process, one
    takes a quarter of a second, in which answers would seem to be late.
    """
    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    finally:
        gc.enable()


@dataclass
class Asking:
    """Somebody who asks a service beside what this thread does, one load after the other.

    Attributes:
        next_load: Makes the load of some seconds.
        statuses: Answers by status; 0: none.
    """

    next_load: Callable[[], Coroutine[Any, Any, Load]]
    statuses: Counter[int] = field(default_factory=Counter)
    _is_over: Event = field(default_factory=Event)

    def __enter__(self) -> Asking:
        self._thread = Thread(target=self._ask)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._is_over.is_set():
            self.statuses += run(self.next_load()).statuses


def demo_titles(count: int) -> list[str]:
    """Return titles of the demo's test split, again from the first after the last."""
    path = Path(__file__).parents[2] / "training" / "demo_data" / "tst.json.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return list(itertools.islice(itertools.cycle(json.loads(x)["title"] for x in file), count))


def predict_requests(texts: Sequence[str], **options: object) -> list[bytes]:
    """Return one request for each text."""
    bodies = [json.dumps({"text": text, **options}).encode() for text in texts]
    return [post("/v1/predict", body) for body in bodies]


def post(path: str, body: bytes, media_type: str = "application/json") -> bytes:
    """Return a request with a body."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: {media_type}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def saturate(port: int, requests: Sequence[bytes], connections: int, seconds: float) -> Load:
    """Ask on several connections at a time."""
    load, turns = Load(), itertools.cycle(requests)

    def ask_again(_: Connection) -> None:
        if time.perf_counter() < started + seconds:
            pool.ask(next(turns))

    pool = Pool(port, load, ask_again)
    await pool.open(connections)
    started = time.perf_counter()
    for _ in range(connections):
        pool.ask(next(turns))
    await asyncio.sleep(seconds)
    await pool.drain(60)
    load.seconds = time.perf_counter() - started
    return load


async def asked(
    ports: Sequence[int], requests: Sequence[bytes], connections: int, seconds: float
) -> list[Load]:
    """Send requests to several servers at once, with the connections divided among them."""
    count = connections // len(ports)
    return await asyncio.gather(*(saturate(each, requests, count, seconds) for each in ports))


async def at_rate(
    port: int, requests: Sequence[bytes], rate: float, seconds: float, *, connections: int = 0
) -> Load:
    """Begin requests at random times (a Poisson process).

    Args:
        port: The service's.
        requests: Asked in turn.
        rate: Requests a second.
        seconds: For how long; answers are waited for a minute longer.
        connections: Opened in advance.
    """
    load = Load()
    pool = Pool(port, load, lambda _: None)
    await pool.open(connections)
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    turns, moments = itertools.cycle(requests), arrivals(rate, seconds)
    started = time.perf_counter()
    planned = next(moments)

    def send_due() -> None:
        nonlocal planned
        while (now := time.perf_counter() - started) >= planned:
            pool.ask(next(turns))
            if (planned := next(moments, -1.0)) < 0:
                done.set()
                return
        loop.call_later(max(planned - now, 0.001), send_due)  # less would be a busy loop

    send_due()
    await done.wait()
    await pool.drain(60)
    load.seconds = time.perf_counter() - started
    return load


def arrivals(rate: float, seconds: float) -> Iterator[float]:
    """Yield the times at which requests begin."""
    rng, moment = random.Random(7), 0.0  # noqa: S311
    while (moment := moment + rng.expovariate(rate)) < seconds:
        yield moment
