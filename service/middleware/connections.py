"""Connections on which a request does not come to its end are closed: after a time, or a size.

uvicorn bounds only the time between requests: a connection on which nothing ever comes, or half of
a request's head, stays open for as long as the client likes, and a head has no end that is too far.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.web.problem_handlers import HTTP_KINDS, problem_body
from service.wire.problems import MEDIA_TYPE, Kind

MAX_HEAD_BYTES = 2**16
"""Of a request's line and headers: 64 KiB, of which proxies let through an eighth."""
_SHOWN_PATH = 200
_NOT_HTTP = Kind("not-http", 400, "The request can't be read")


class HeadTooLargeError(Exception):
    """A request's line and headers have more bytes than they may have."""


class DeadlineProtocol(HttpToolsProtocol):
    """HTTP with a time limit for the head of each request, however its bytes trickle in.

    What is no HTTP, or begins with too long a head, is answered with a problem document.

    Bodies that the application reads have limits there (`service.middleware.body_limits`,
    `service.routes.batch_stream`). What is left of a body after its answer is held to the same
    limit as a head.
    """

    read_timeout_s: float
    """Set by `protocol_with`, since uvicorn takes a class."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._deadline: asyncio.TimerHandle | None = None
        self._is_in_head = False
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take some bytes."""
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._is_head_too_large and not self.transport.is_closing():
            self.send_400_response("")
        if self.cycle is not None and not self.cycle.response_complete:
            self._unset_keepalive_if_required()  # a request came right behind the last one's body
        self._watch()

    def on_message_begin(self) -> None:
        """Note that a head begins."""
        super().on_message_begin()
        self._is_in_head = True
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        """Note that it has ended.

        Raises:
            HeadTooLargeError: It is refused; the parser stops at this.
        """
        self._head_bytes = len(self.url) + sum(len(x) + len(y) for x, y in self.headers)
        if self._is_head_too_large:
            raise HeadTooLargeError
        super().on_headers_complete()
        self._is_in_head = False

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Refuse what can't be a request, and close the connection."""
        kind, detail = _NOT_HTTP, "What came is no HTTP request; send one in HTTP/1.1"
        if self._is_in_head and self._is_head_too_large:
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

    def on_response_complete(self) -> None:
        """Wait for the rest of the next head, if a part of it came before this answer."""
        super().on_response_complete()
        if self._is_in_head:
            self._unset_keepalive_if_required()
            self._watch()

    def on_message_complete(self) -> None:
        """Wait for the next request where one was answered before its body had come whole."""
        super().on_message_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        super().connection_lost(exc)
        self._forget()

    @property
    def _is_head_too_large(self) -> bool:
        return self._head_bytes > MAX_HEAD_BYTES

    @property
    def _is_owed_a_request(self) -> bool:
        """Whether the client is to send what is missing of a head, or of an answered body."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        return not is_answering and self.timeout_keep_alive_task is None

    def _watch(self) -> None:
        if not self._is_owed_a_request:
            self._forget()
        elif self._deadline is None:  # else it goes on: more bytes do not prolong it
            self._deadline = self.loop.call_later(self.read_timeout_s, self._end)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end(self) -> None:
        if self._is_owed_a_request and not self.transport.is_closing():
            self.transport.close()


def protocol_with(read_timeout_s: float) -> type[DeadlineProtocol]:
    """Return the protocol with a time limit, in seconds."""
    return type("DeadlineProtocol", (DeadlineProtocol,), {"read_timeout_s": read_timeout_s})
