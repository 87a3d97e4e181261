"""A small load generator: raw HTTP/1.1 over asyncio streams; it takes little of the machine.

Closed loop (`saturate`): so many connections, each asking again as soon as it is answered.
Open loop (`at_rate`): requests begin at given times whether or not others are answered, so that
waiting is seen in the latencies and not hidden by a client that waits too.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Load:
    """What came of some load.

    Attributes:
        statuses: Answers by status; 0: none.
        latencies: Seconds of every answer, by status.
        seconds: From the first request to the last answer.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    latencies: dict[int, list[float]] = field(default_factory=dict)
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


class Client:
    """Connections to one server, kept open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, request: bytes) -> int:
        """Return the status of one request; 0 where the connection broke."""
        try:
            reader, writer = self._free.pop() if self._free else await self._connect()
            writer.write(request)
            status, keeps = await self._answer(reader)
        except (OSError, asyncio.IncompleteReadError, ValueError):
            return 0
        if keeps:
            self._free.append((reader, writer))
        else:
            writer.close()
        return status

    async def close(self) -> None:
        for _, writer in self._free:
            writer.close()
        self._free.clear()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port)

    @staticmethod
    async def _answer(reader: asyncio.StreamReader) -> tuple[int, bool]:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = head.index(b"content-length:") + 15
        await reader.readexactly(int(head[length : head.index(b"\r", length)]))
        return int(head[9:12]), b"connection: close" not in head


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


GET = "GET {} HTTP/1.1\r\nHost: bench\r\n\r\n"


async def saturate(port: int, requests: Sequence[bytes], connections: int, seconds: float) -> Load:
    """Ask on so many connections at a time for so long."""
    load, client, turns = Load(), Client(port), itertools.cycle(requests)
    started = time.perf_counter()

    async def worker() -> None:
        while time.perf_counter() < started + seconds:
            begun = time.perf_counter()
            load.note(await client.ask(next(turns)), time.perf_counter() - begun)

    await asyncio.gather(*(worker() for _ in range(connections)))
    load.seconds = time.perf_counter() - started
    await client.close()
    return load


async def at_rate(port: int, requests: Sequence[bytes], rate: float, seconds: float) -> Load:
    """Begin so many requests a second, at random times (a Poisson process), for so long."""
    load, client, turns = Load(), Client(port), itertools.cycle(requests)
    started = time.perf_counter()

    async def one(request: bytes, planned: float) -> None:
        status = await client.ask(request)
        load.note(status, time.perf_counter() - planned)

    tasks = set()
    for moment in arrivals(rate, seconds):
        planned = started + moment
        await asyncio.sleep(max(0.0, planned - time.perf_counter()))
        task = asyncio.create_task(one(next(turns), planned))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    load.seconds = time.perf_counter() - started
    await client.close()
    return load


def arrivals(rate: float, seconds: float, seed: int = 7) -> Iterator[float]:
    """Yield the times at which requests begin."""
    rng, moment = random.Random(seed), 0.0  # noqa: S311
    while (moment := moment + rng.expovariate(rate)) < seconds:
        yield moment


async def probe(port: int, path: str, every_s: float, seconds: float) -> Load:
    """Ask for a page again and again."""
    load, client = Load(), Client(port)
    request = GET.format(path).encode()
    started = time.perf_counter()
    while time.perf_counter() < started + seconds:
        begun = time.perf_counter()
        load.note(await client.ask(request), time.perf_counter() - begun)
        await asyncio.sleep(every_s)
    load.seconds = time.perf_counter() - started
    await client.close()
    return load
