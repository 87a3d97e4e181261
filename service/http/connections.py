"""Time and size limits of a connection: for requests that do not end and answers that nobody reads.

uvicorn limits only the time between requests. Without more, a connection with half a request, or
with an answer that its client does not read, stays open for as long as the client likes.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from longtail.service.http.problem_handlers import HTTP_KINDS, problem_body
from longtail.service.wire.problems import MEDIA_TYPE, Kind

MAX_HEAD_BYTES = 2**16
"""Limit on a request's line and headers: 64 KiB. Most proxies allow an eighth of that."""
MAX_UNREAD_BYTES = 2**26
"""Answers that clients have not read yet, of all connections together: 64 MiB."""
_UNREAD_GRACE_S = 1.0
"""A client gets this long to begin reading before its connection may be closed for its memory."""
_LOOKS = 10
"""How often a connection is examined within the shortest of its time limits."""
_MIN_INTERVAL_S = 0.1
_SHOWN_PATH = 200
_NOT_HTTP = Kind("not-http", 400, "The request can't be read")


class HeadTooLargeError(Exception):
    """A request's line and headers exceed `MAX_HEAD_BYTES`."""


class LimitedProtocol(HttpToolsProtocol):
    """HTTP/1.1 in which each state of a connection that waits for the client has a time limit.

    The head of a request, what is left of a body after its answer, and the pause between requests
    end by closing the connection; an answer that is not read in time ends by aborting it, as a
    closed connection would wait for its client. Bodies that the application reads have limits there
    (`longtail.service.http.limits`, `longtail.service.routes.batch`).

    What is not HTTP, or begins with too large a head, is answered with a problem document.
    """

    read_timeout_s: float
    write_timeout_s: float
    """Both are set by `protocol_with`, since uvicorn takes a class."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._num_messages = 0
        self._is_in_head = False
        self._is_in_message = False
        self._head_bytes = 0
        self._waits_for: object = None
        self._waits_since = 0.0
        self._unread_since = 0.0
        self._unread_at_first = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Parse some bytes."""
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if (
            self._is_in_head
            and self._head_bytes > MAX_HEAD_BYTES
            and not self.transport.is_closing()
        ):
            self.send_400_response("")
        self._note()

    def on_message_begin(self) -> None:
        """Note that a head begins."""
        super().on_message_begin()
        self._num_messages += 1
        self._is_in_head = self._is_in_message = True
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        """Note that the head has ended."""
        self._head_bytes = len(self.url) + sum(len(x) + len(y) for x, y in self.headers)
        if self._head_bytes > MAX_HEAD_BYTES:
            raise HeadTooLargeError
        super().on_headers_complete()
        self._is_in_head = False

    def on_message_complete(self) -> None:
        """Note that the body has ended."""
        super().on_message_complete()
        self._is_in_message = False

    def on_response_complete(self) -> None:
        """Wait for the client to read the answer, and then for its next request."""
        super().on_response_complete()
        self._note()

    def pause_writing(self) -> None:
        """Note that an answer is not read as fast as it is written; called by the transport."""
        super().pause_writing()
        self._unread_since = self.loop.time()
        self._unread_at_first = self.num_unread_bytes
        _bound_unread(self)

    def timeout_keep_alive_handler(self) -> None:
        """Do nothing: `_look` ends idle connections, and knows which are idle."""

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: any client could fill the log with it."""

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Refuse what can't be a request, and close the connection."""
        kind, detail = _NOT_HTTP, "What came is no HTTP request; send one in HTTP/1.1"
        if self._is_in_head and self._head_bytes > MAX_HEAD_BYTES:
            kind = HTTP_KINDS[431]
            detail = (
                f"The request's line and headers have more than {MAX_HEAD_BYTES} bytes; send "
                "less, and what is long in the body"
            )
        path = self.url.partition(b"?")[0].decode("latin-1") if self._is_in_head else ""
        body = problem_body({"path": path[:_SHOWN_PATH]}, kind, detail)
        head = b"content-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(
            STATUS_LINE[kind.status] + head % (MEDIA_TYPE.encode("ascii"), len(body)) + body
        )
        self.transport.close()

    @property
    def num_unread_bytes(self) -> int:
        """Bytes of answers that wait in this process until the client has read earlier ones."""
        return self.transport.get_write_buffer_size()

    def reading_rate(self, now: float) -> float:
        """Return the bytes a second that the client has read since writing was paused."""
        num_read = self._unread_at_first - self.num_unread_bytes
        return num_read / max(now - self._unread_since, _MIN_INTERVAL_S)

    def may_be_aborted(self, now: float) -> bool:
        """Whether the client has had time to read."""
        return self.flow.write_paused and now - self._unread_since >= _UNREAD_GRACE_S

    def _state(self) -> tuple[object, float]:
        """Return what the connection waits for, equal as long as it is the same, and the limit."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if num_unread := self.num_unread_bytes:
            # While an answer is being written, any progress is enough: a stream may take hours.
            is_written = not is_answering or self.transport.is_closing()
            return ("read", self._num_messages, is_written or num_unread), self.write_timeout_s
        if is_answering:
            return None, float("inf")
        if self._is_in_message or not self._num_messages:
            return ("request", self._num_messages), self.read_timeout_s
        return ("next request", self._num_messages), self.timeout_keep_alive

    def _note(self) -> float:
        """Note what the connection waits for now; return the seconds left for that."""
        waits_for, limit_s = self._state()
        now = self.loop.time()
        if waits_for != self._waits_for:
            self._waits_for, self._waits_since = waits_for, now
        return self._waits_since + limit_s - now

    def _look(self) -> None:
        """Close the connection if its client is late; else look again in a while."""
        if self._note() <= 0:
            # `close` waits until all is read.
            (self.transport.abort if self.num_unread_bytes else self.transport.close)()
        limits = self.read_timeout_s, self.write_timeout_s, self.timeout_keep_alive
        interval_s = max(min(limits) / _LOOKS, _MIN_INTERVAL_S)
        self._timer = self.loop.call_later(interval_s, self._look)


def protocol_with(read_timeout_s: float, write_timeout_s: float) -> type[LimitedProtocol]:
    """Return the protocol with time limits in seconds."""
    limits = {"read_timeout_s": read_timeout_s, "write_timeout_s": write_timeout_s}
    return type("LimitedProtocol", (LimitedProtocol,), limits)


def _bound_unread(newest: LimitedProtocol) -> None:
    """Abort the connections that read slowest until the rest holds at most `MAX_UNREAD_BYTES`."""
    now = newest.loop.time()
    connections = [each for each in newest.connections if isinstance(each, LimitedProtocol)]
    excess = sum(each.num_unread_bytes for each in connections) - MAX_UNREAD_BYTES
    slow = [each for each in connections if each.may_be_aborted(now)]
    for connection in sorted(slow, key=lambda each: each.reading_rate(now)):
        if excess <= 0:
            return
        excess -= connection.num_unread_bytes
        connection.transport.abort()
