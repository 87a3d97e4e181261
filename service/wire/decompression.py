"""gzip bodies, unpacked piece by piece within limits."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from longtail.models.errors import RequestError

PIECE_BYTES = 2**16
MAX_RATIO = 200
"""Of unpacked to packed bytes; texts reach 3 to 20, and a body that only wastes time 1000."""
_FREE_BYTES = 2**20
"""Unpacked bytes from which the ratio counts: a small body may hold one text many times."""
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


class BadGzipError(RequestError):
    """What was sent as gzip or deflate is none, or only looks like a body."""


class Inflater:
    """Unpacks a stream of one gzip or zlib member or several."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._has_begun = False
        self._num_packed = 0
        self._num_unpacked = 0

    def feed(self, packed: bytes) -> Iterator[bytes]:
        """Yield what comes out of some more bytes, at most `PIECE_BYTES` at a time.

        Raises:
            BadGzipError: They are not gzip, or unpack to so much more that they can't be texts.
        """
        self._num_packed += len(packed)
        is_full = False
        while packed or is_full:
            if self._member.eof:  # the next member
                self._member, self._has_begun = zlib.decompressobj(_GZIP_OR_ZLIB), False
            piece = self._unpack(packed)
            packed = self._member.unconsumed_tail or self._member.unused_data
            is_full = len(piece) == PIECE_BYTES and not self._member.eof  # there may be more inside
            if piece:
                yield piece

    def finish(self) -> None:
        """Check that the body was whole.

        Raises:
            BadGzipError: It ended too early.
        """
        if self._has_begun and not self._member.eof:
            raise BadGzipError("the gzip body ends too early; send it whole")

    def _unpack(self, packed: bytes) -> bytes:
        try:
            piece = self._member.decompress(packed, PIECE_BYTES)
        except zlib.error as error:
            raise BadGzipError(
                f"the body is not gzip or deflate: {error}; send it whole"
            ) from error
        self._has_begun = True
        self._num_unpacked += len(piece)
        if self._num_unpacked > max(_FREE_BYTES, MAX_RATIO * self._num_packed):
            raise BadGzipError(
                f"the gzip body unpacks to more than {MAX_RATIO} times its size; send other "
                "texts, or send them unpacked"
            )
        return piece
