"""Refuses bodies over a limit, before and while they are read, and unpacks gzip ones.

Queries of too many parameters are refused, too.

A client that hangs up before its body was sent whole is noticed here, for all routes alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeAlias

from starlette.types import Receive, Scope

from longtail.service.web.encodings import inflater_for
from longtail.service.web.problem_handlers import BodyError
from longtail.service.web.scopes import STREAM_PATHS
from longtail.service.wire.decompression import BadGzipError, Inflater

MAX_PARAMETERS = 4000
"""Of a query: what fits into the longest takes a tenth of a second to parse."""

BodyReader: TypeAlias = Callable[[Receive], Awaitable[bytes]]


class BodyLimits:
    """The limits of the bodies that are read whole, in bytes sent and unpacked, and in time."""

    def __init__(self, max_bytes: int, timeout_s: float) -> None:
        """Take the limits.

        Args:
            max_bytes: Most bytes of a body.
            timeout_s: Seconds in which it must be received.
        """
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s

    def reader_for(
        self, scope: Scope, path: str, headers: Mapping[bytes, bytes]
    ) -> BodyReader | None:
        """Return what reads the body of a request; None for a stream, which is never held whole.

        Raises:
            BodyError: The query has too many parameters, or the headers announce a body that is
                too long or packed in a way that is not read.
        """
        num_parameters = scope.get("query_string", b"").count(b"&") + 1
        if num_parameters > MAX_PARAMETERS:
            raise BodyError(
                431, f"the query has {num_parameters} parameters; expected at most {MAX_PARAMETERS}"
            )
        if path in STREAM_PATHS:
            return None
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > self._max_bytes:
            raise self._too_long()
        encoding = headers.get(b"content-encoding")
        inflater = None if encoding is None else inflater_for(encoding.decode("latin-1"))
        return partial(self._read, inflater)

    async def _read(self, inflater: Inflater | None, receive: Receive) -> bytes:
        """Return the body of a request.

        Raises:
            BodyError: It is too long, comes too slowly, is not what its encoding says, or the
                client is gone.
        """
        pieces: list[bytes] = []
        num_bytes, is_whole = 0, False
        try:
            async with asyncio.timeout(self._timeout_s):
                while not is_whole:
                    sent, is_whole = await _next_piece(receive)
                    for piece in (sent,) if inflater is None else inflater.feed(sent):
                        num_bytes += len(piece)
                        if num_bytes > self._max_bytes:
                            raise self._too_long()
                        pieces.append(piece)
            if inflater is not None:
                inflater.finish()
        except BadGzipError as error:
            raise BodyError(400, str(error)) from error
        except TimeoutError as error:
            detail = (
                f"The body did not come whole within {self._timeout_s:g} s; send it faster, or "
                "fewer texts in one request"
            )
            raise BodyError(408, detail, {"Connection": "close"}) from error
        return b"".join(pieces)

    def _too_long(self) -> BodyError:
        return BodyError(
            413,
            f"The body has more than {self._max_bytes} bytes; "
            "send fewer or shorter texts in one request",
        )


async def _next_piece(receive: Receive) -> tuple[bytes, bool]:
    """Return more of a body, and whether that was all."""
    message = await receive()
    if message["type"] != "http.request":
        raise BodyError(499, "The client hung up before its body was sent whole")
    return message.get("body", b""), not message.get("more_body", False)
