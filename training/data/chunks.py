"""Lists in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

_CHUNK = 1024  # texts held in memory at a time


def chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Give the texts in lists, so that few are held in memory.

    Yields:
        The next texts, in order.
    """
    iterator = iter(texts)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk
