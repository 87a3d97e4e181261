"""Time and size limits of a connection: for requests that do not end and answers that nobody reads.

uvicorn limits only the time between requests. Without more, a connection with half a request, or
with an answer that its client does not read, stays open for as long as the client likes, and the
parser stores header fields, trailers and pipelined requests without limit.
"""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from longtail.service.http.problem_handlers import HTTP_KINDS, problem_body
from longtail.service.wire.problems import MEDIA_TYPE, Kind

MAX_HEAD_BYTES = 2**16
"""Limit on a request's line and headers: 64 KiB. Most proxies allow an eighth of that.

The bytes between two pieces of a body (chunk sizes, extensions, trailers) have the same limit."""
MAX_FIELDS = 200
"""Limit on the fields of a request: headers and trailers."""
MAX_WAITING = 16
"""Pipelined requests that may wait for the answer to an earlier one."""
MAX_UNREAD_BYTES = 2**26
"""Answers that clients have not read yet, of all connections together: 64 MiB."""
_UNREAD_GRACE_S = 1.0
"""A client gets this long to begin reading before its connection may be closed for its memory."""
_LINGER_S = 5.0
"""A request that was answered before its end gets this long to end."""
_HALF_CLOSED_S = 1.0
"""An answer must begin within this time after its client has stopped sending: most are gone."""
_LOOKS = 10
"""How often a connection is examined within the shortest of its time limits."""
_MIN_INTERVAL_S = 0.1
_SHOWN_PATH = 200
_NOT_HTTP = Kind("not-http", 400, "The request can't be read")
_CODING = Kind("transfer-coding", 501, "The body's transfer coding is not one that is read")


class RefusedError(Exception):
    """Ends the parsing of a request that is refused."""


class LimitedProtocol(HttpToolsProtocol):
    """HTTP/1.1 in which each state of a connection that waits for the client has a time limit.

    The head of a request, what is left of a body after its answer, and the pause between requests
    end by closing the connection; an answer that is not read in time ends by aborting it, as a
    closed connection would wait for its client. Bodies that the application reads have limits there
    (`longtail.service.http.limits`).

    What is not HTTP, or begins with too large a head, is answered with a problem document, after
    the answers to the requests before it.
    """

    timeout_s: float
    max_connections: int
    """Both are set by `protocol_with`, since uvicorn takes a class."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._num_messages = 0
        self._is_in_head = False
        self._is_in_message = False
        self._num_fields = 0
        self._loose_bytes = 0
        self._num_open = 0
        self._reason = _NOT_HTTP, "What came is no HTTP request; send one in HTTP/1.1"
        self._refusal: bytes | None = None
        self._waits_for: object = None
        self._waits_since = 0.0
        self._unread_since = 0.0
        self._unread_at_first = 0
        self._timer: asyncio.TimerHandle | None = None
        self.heard_at = self.loop.time()
        """When the client sent something last."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        _bound_connections(self)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Parse some bytes; drop what comes after a request that was refused."""
        self.heard_at = self.loop.time()
        if self._refusal is not None:
            return
        self._loose_bytes += len(data)
        super().data_received(data)
        if self._is_in_message and self._loose_bytes > MAX_HEAD_BYTES:
            self._reason = self._too_large()
            self.send_400_response("")
        self._note()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer the requests that came whole, where the client stops sending but may still read.

        Returns:
            Whether the connection stays open for that.
        """
        is_answering = self._num_open > 0 and not self._is_in_message
        if is_answering:
            self.cycle.keep_alive &= self._refusal is not None  # which closes the connection
            self.loop.call_later(_HALF_CLOSED_S, self._end_half_closed)
        return is_answering

    def on_message_begin(self) -> None:
        """Note that a head begins."""
        super().on_message_begin()
        self._num_messages += 1
        self._is_in_head = self._is_in_message = True
        self._num_fields = self._loose_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a field of the head; trailers are counted and dropped."""
        self._num_fields += 1
        if self._num_fields > MAX_FIELDS:
            self._refuse(*self._too_large())
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Note that the head has ended."""
        if len(self.url) + sum(len(x) + len(y) for x, y in self.headers) > MAX_HEAD_BYTES:
            self._refuse(*self._too_large())
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings and self.parser.get_http_version() == "1.0":
            self._refuse(_NOT_HTTP, "HTTP/1.0 has no Transfer-Encoding; send a Content-Length")
        if codings not in ([], [b"chunked"]):
            self._refuse(_CODING, "Expected 'Transfer-Encoding: chunked' alone, or none")
        if len(self.pipeline) >= MAX_WAITING:
            detail = f"{MAX_WAITING} requests of this connection wait; read answers before you ask"
            self._refuse(_NOT_HTTP, detail)
        super().on_headers_complete()
        self._num_open += 1
        self._is_in_head = False
        self._loose_bytes = 0

    def on_body(self, body: bytes) -> None:
        """Take some bytes of a body."""
        super().on_body(body)
        self._loose_bytes = 0

    def on_message_complete(self) -> None:
        """Note that the body has ended."""
        super().on_message_complete()
        self._is_in_message = False

    def on_response_complete(self) -> None:
        """Wait for the client to read the answer, and then for its next request."""
        self._num_open -= 1
        super().on_response_complete()
        if self._refusal is not None and not self._num_open:
            self._end_refused()
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
        """Refuse the last request, after the answers to those before it; close the connection."""
        kind, detail = self._reason
        path = self.url.partition(b"?")[0].decode("latin-1") if self._is_in_head else ""
        body = problem_body({"path": path[:_SHOWN_PATH]}, kind, detail)
        head = b"content-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        head %= MEDIA_TYPE.encode("ascii"), len(body)
        self._refusal = STATUS_LINE[kind.status] + head + body
        if self._is_in_message and not self._is_in_head:
            if self.pipeline:  # whose newest it is
                self.pipeline.popleft()
                self._num_open -= 1
            else:
                self._num_open = 0
                if self.cycle.response_started:
                    self._refusal = b""
        self._is_in_message = False
        if not self._num_open:
            self._end_refused()

    def _refuse(self, kind: Kind, detail: str) -> NoReturn:
        """Refuse a request while it is parsed."""
        self._reason = kind, detail
        raise RefusedError

    def _too_large(self) -> tuple[Kind, str]:
        kind, what = _NOT_HTTP, "trailers, or the extensions of a chunk,"
        if self._is_in_head:
            kind, what = HTTP_KINDS[431], "line and headers"
        return kind, (
            f"The request's {what} have more than {MAX_HEAD_BYTES} bytes or {MAX_FIELDS} fields; "
            "send less, and what is long in the body"
        )

    def _end_refused(self) -> None:
        assert self._refusal is not None
        if not self.transport.is_closing():
            self.transport.write(self._refusal)
            self.transport.close()

    def _end_half_closed(self) -> None:
        """Close the connection, unless an answer is being written, which fails if nobody reads."""
        if not self.cycle.response_started:
            self.transport.close()

    @property
    def waits_for_client(self) -> bool:
        """Whether the client has to send or to read something before its answer is complete."""
        return self._is_in_message or not self._num_open or self.flow.write_paused

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
        is_answering = self._num_open > 0
        if num_unread := self.num_unread_bytes:
            # While an answer is being written, any progress is enough: it may take minutes.
            is_written = not is_answering or self.transport.is_closing()
            return ("read", self._num_messages, is_written or num_unread), self.timeout_s
        if is_answering:
            return None, float("inf")
        if self._is_in_message and not self._is_in_head:
            return ("rest", self._num_messages), min(_LINGER_S, self.timeout_s)
        if self._is_in_message or not self._num_messages:
            return ("request", self._num_messages), self.timeout_s
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
        limits = self.timeout_s, self.timeout_keep_alive
        interval_s = max(min(limits) / _LOOKS, _MIN_INTERVAL_S)
        self._timer = self.loop.call_later(interval_s, self._look)


def protocol_with(timeout_s: float, max_connections: int) -> type[LimitedProtocol]:
    """Return the protocol with a limit on the seconds to send or read, and one on connections."""
    limits = {"timeout_s": timeout_s, "max_connections": max_connections}
    return type("LimitedProtocol", (LimitedProtocol,), limits)


def _bound_connections(newest: LimitedProtocol) -> None:
    """Where there are too many connections, abort the one whose client was silent for longest.

    So a new connection, such as that of a probe, is taken as long as any other waits for its
    client.
    """
    if len(newest.connections) <= newest.max_connections:
        return
    connections = [each for each in newest.connections if isinstance(each, LimitedProtocol)]
    connections = [each for each in connections if not each.transport.is_closing()]
    if len(connections) > newest.max_connections:
        idle = filter(lambda each: each.waits_for_client, connections)
        min(idle, key=lambda each: each.heard_at).transport.abort()


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
