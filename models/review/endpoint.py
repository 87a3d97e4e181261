"""A reviewer behind HTTP: posts JSON to one URL; answers are bounded in size and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import httpx
from pydantic_core import from_json

from longtail.models.errors import ConfigError
from longtail.models.review.reviewer import ReviewError

T = TypeVar("T")
MAX_ANSWER_BYTES = 2**18
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which another attempt may succeed."""


class Endpoint:
    """One URL. Redirects are not followed: texts go to the address of the operator only."""

    def __init__(self, name: str, address: str, path: str, key: str) -> None:
        """Prepare; nothing is sent yet.

        Args:
            name: Of the reviewer (see `Reviewer.name`).
            address: http or https, with a host.
            path: Added to it.
            key: Sent as a bearer token where there is one.

        Raises:
            ConfigError: The address or the key has another form.
        """
        try:
            url = httpx.URL(address.rstrip("/") + path)
        except httpx.InvalidURL:
            url = httpx.URL("")
        if url.scheme not in {"http", "https"} or not url.host or url.userinfo or url.query:
            raise ConfigError(
                f"address of the reviewer {address[:100]!r}: expected http://HOST:PORT or "
                "https://HOST, without a user, a password and a query; give a key by "
                "LONGTAIL_REVIEW_KEY"
            )
        if key and not (key.isascii() and key.isprintable()):
            raise ConfigError("key of the reviewer: expected printable ASCII characters")
        headers = {"Accept-Encoding": "identity", "User-Agent": "longtail"}
        headers |= {"Authorization": f"Bearer {key}"} if key else {}
        self.name = name
        self._url = url
        self._http = httpx.AsyncClient(headers=headers, timeout=None)  # noqa: S113  # the caller's

    async def ask(self, body: Mapping[str, Any], read: Callable[[Any], T]) -> T:
        """Return what `read` makes of the answer to a body in JSON.

        Raises:
            ReviewError: There is no answer, or `read` raises an error of one that has another form.
                The message quotes nothing of it, as it may repeat texts or the key.
        """
        try:
            async with self._http.stream("POST", self._url, json=body) as response:
                self._check(response)
                content = bytearray()
                async for piece in response.aiter_raw():
                    content += piece
                    if len(content) > MAX_ANSWER_BYTES:
                        raise ReviewError(f"{self._url}: more than {MAX_ANSWER_BYTES} bytes")
        except httpx.HTTPError as error:
            raise ReviewError(
                f"{self._url} gives no answer ({type(error).__name__})", is_passing=True
            ) from error
        try:
            return read(from_json(bytes(content)))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise ReviewError(f"{self._url}: unexpected answer ({type(error).__name__})") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def _check(self, response: httpx.Response) -> None:
        status = response.status_code
        if status != httpx.codes.OK:
            is_passing = status in _PASSING
            raise ReviewError(f"{self._url} answers with {status}", is_passing=is_passing)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise ReviewError(f"{self._url}: a compressed answer, which was not asked for")
