"""A reviewer on the loopback that answers rightly, or misbehaves in every way it is asked to.

It knows the routes `/rerank` and `/chat/completions`. Nothing of an HTTP library is used, so that
an answer can be as wrong as a socket allows.
"""

from __future__ import annotations

import gzip
import json
import math
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

Score = Callable[[str, str], float]
"""Returns the score of a candidate for a text."""

RIGHT = "right"
LIES = (
    "garbage", "html", "nan", "huge-number", "words", "too-few", "too-many", "twice", "empty",
    "nested", "huge", "gzip", "redirect", "refused",
)  # fmt: skip
"""Faults after which another attempt is in vain."""
BREAKS = ("close", "half", "reset", "broken", "busy", "no-http", "informs")
"""Faults that may pass."""
SLOW = ("silent", "drip", "endless-head")
FAULTS = (*LIES, *BREAKS, *SLOW)
_HUGE = 2**20


class StandIn:
    """Answers each connection on a thread of its own.

    Attributes:
        url: Its address.
        bodies: Requests so far.
        faults: What the next connections get, in turn; right answers where it is at its end.
    """

    def __init__(self, score: Score, faults: Iterable[str] = ()) -> None:
        self.faults: Iterator[str] = iter(faults)
        self.bodies: list[tuple[str, dict[str, Any]]] = []
        self._score = score
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening, and let all that hangs go."""
        self._is_over.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._is_over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, ValueError):
            path, body = _read(connection)
            with self._lock:
                self.bodies.append((path, body))
                fault = next(self.faults, RIGHT)
            self._answer(connection, path, body, fault)

    def _answer(self, connection: socket.socket, path: str, body: Any, fault: str) -> None:
        if fault == "close":
            return
        if fault == "silent":
            self._is_over.wait(60)
        elif fault in {"drip", "endless-head", "informs"}:
            inform, head = b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\n"
            connection.sendall({"drip": head + b"\r\n", "informs": inform}.get(fault, head))
            while not self._is_over.wait(0.02):
                connection.sendall(inform * 1000 if fault == "informs" else b"X-More: 1\r\n")
        elif fault == "reset":
            linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # on, for no second
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        elif fault == "no-http":
            connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
        else:
            connection.sendall(self._written(path, body, fault))

    def _written(self, path: str, body: Any, fault: str) -> bytes:
        statuses = {"broken": 500, "busy": 503, "redirect": 307, "refused": 401}
        content = self._right(path, body) if path == "/rerank" else self._chat(body)
        content = _spoilt(content, fault)
        head = f"HTTP/1.1 {statuses.get(fault, 200)} X\r\nConnection: close\r\n"
        length = len(content) + 1000 * (fault == "half")
        head += f"Content-Type: application/json\r\nContent-Length: {length}\r\n"
        if fault == "redirect":
            head += f"Location: {self.url}{path}\r\n"
        if fault == "gzip":
            head += "Content-Encoding: gzip\r\n"
        return head.encode() + b"\r\n" + content

    def _right(self, path: str, body: Any) -> bytes:
        scores = [self._score(body["query"], each) for each in body["texts"]]
        ranked = sorted(enumerate(scores), key=lambda each: -each[1])
        return json.dumps([{"index": i, "score": score} for i, score in ranked]).encode()

    def _chat(self, body: Any) -> bytes:
        question = body["messages"][-1]["content"]
        text, _, rest = question.removeprefix("Document:\n").partition("\n\nSubject: ")
        log_odds = self._score(text, rest.partition("\n\nDoes")[0])
        yes, no = -math.log1p(math.exp(-log_odds)), -math.log1p(math.exp(log_odds))
        tokens = [{"token": " Yes", "logprob": yes}, {"token": "no", "logprob": no}]
        place = {"token": "x", "logprob": -1.0, "top_logprobs": tokens}
        return json.dumps({"choices": [{"logprobs": {"content": [place]}}]}).encode()


def _spoilt(content: bytes, fault: str) -> bytes:
    """Return the content of an answer as a fault has it."""
    other = {
        "garbage": b"\xff\x00[{",
        "html": b"<html>Sign in</html>",
        "empty": b"",
        "nested": b"[" * 100_000,
        "huge": b"[" + b" " * _HUGE + content[1:],
        "too-few": b"[]",
    }
    if fault in other:
        return other[fault]
    if fault == "gzip":
        return gzip.compress(content)
    ranked = json.loads(content)
    if isinstance(ranked, dict):
        tokens = ranked["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        key, listed = "logprob", tokens
    else:
        key, listed = "score", ranked
    values = {"nan": math.nan, "huge-number": 1e300, "words": "high"}
    if fault in values:
        for each in listed:
            each[key] = values[fault]
    elif fault in {"too-many", "twice"} and isinstance(ranked, list):
        ranked[-1 if fault == "twice" else len(ranked) :] = [ranked[0]]
    return json.dumps(ranked).encode()


def _read(connection: socket.socket) -> tuple[str, Any]:
    """Return path and body of a request."""
    content = b""
    while b"\r\n\r\n" not in content:
        content += _received(connection)
    head, _, body = content.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while len(body) < int(fields[b"content-length"]):
        body += _received(connection)
    return head.split(b" ")[1].decode(), json.loads(body)


def _received(connection: socket.socket) -> bytes:
    piece = connection.recv(2**16)
    if not piece:
        raise ValueError("the client hung up")
    return piece


@contextmanager
def standing_in(score: Score, faults: Iterable[str] = ()) -> Iterator[StandIn]:
    """Run a stand-in."""
    stand_in = StandIn(score, faults)
    try:
        yield stand_in
    finally:
        stand_in.close()
