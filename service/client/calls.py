"""Options, errors, retries and answers of clients; an event loop for callers that have none."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock, Thread
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from longtail.models.errors import LongtailError
from longtail.models.options import AimName
from longtail.service.schemas.base import Problem
from longtail.service.schemas.predict import BatchSummary

T = TypeVar("T")

Version: TypeAlias = int | Literal["current"]

AGAIN = frozenset({429, 503})
"""Statuses that ask to come back."""
_MAX_DETAIL_CHARACTERS = 500
_chance = random.SystemRandom()


class PredictOptions(TypedDict, total=False):
    """What to answer about texts; see `longtail.service.schemas.base.Options`."""

    k: int
    scorer: str
    threshold: float | Literal["auto"]
    correction: Literal["none", "prior", "tree"]
    tail_dial: float
    aim: AimName
    accept: bool | float | str
    include: Sequence[str]
    exclude: Sequence[str]
    include_set: str
    exclude_set: str
    explain: bool
    version: Version


class RequestOptions(PredictOptions, total=False):
    """What to answer about the texts of one request, and how soon."""

    timeout_s: float


class ClientError(LongtailError):
    """Base of what a client raises."""


class ConnectionFailedError(ClientError):
    """The service can't be reached, or the connection broke."""


class NoAnswerError(ClientError):
    """The service took a request and did not answer in time; it is not asked again."""


class ProblemError(ClientError):
    """The service answered with a problem.

    Attributes:
        problem: Its document; compare `problem.type`.
        retry_after_s: Seconds after which to come back, where the service says so.
    """

    def __init__(self, problem: Problem, retry_after_s: float | None = None) -> None:
        super().__init__(f"{problem.status} {problem.title}: {problem.detail}")
        self.problem = problem
        self.retry_after_s = retry_after_s


class IncompleteBatchError(ClientError):
    """A batch ended before all of its lines were answered; send those again that were not.

    Attributes:
        summary: What the service said at the end; None where it said nothing.
    """

    def __init__(self, summary: BatchSummary | None) -> None:
        why = "the answer breaks off" if summary is None else "the service gave it up"
        if summary is not None and summary.error is not None:
            why = f"{summary.error.title}: {summary.error.detail}"
        super().__init__(f"the batch is not complete: {why}; send again the lines without answers")
        self.summary = summary


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and for how long, a client comes back after 429, 503 or a broken connection.

    Attributes:
        max_attempts: Times that a call is tried.
        max_wait_s: Seconds that a call waits between attempts, all together; where the service
            asks for more, its error is raised at once.
        first_wait_s: Wait after the first attempt where the service names none; doubles each time.
        jitter: Part of a wait, at most, that is added to it by chance, so that many clients do not
            come back together.
    """

    max_attempts: int = 5
    max_wait_s: float = 60.0
    first_wait_s: float = 0.25
    jitter: float = 0.5

    def wait_s(self, attempt: int, waited_s: float, error: ClientError) -> float | None:
        """Return the seconds to wait before the next attempt; None where there is none.

        Args:
            attempt: Number of the one that failed, from 1.
            waited_s: Seconds that were waited before it.
            error: How it failed.
        """
        asked = None
        if isinstance(error, ProblemError) and error.problem.status in AGAIN:
            asked = error.retry_after_s
        elif not isinstance(error, ConnectionFailedError):
            return None
        wait_s = self.first_wait_s * 2 ** (attempt - 1) if asked is None else asked
        wait_s *= 1 + self.jitter * _chance.random()
        is_over = attempt >= self.max_attempts or waited_s + wait_s > self.max_wait_s
        return None if is_over else wait_s


NEVER = Retry(max_attempts=1)


def http_error(url: httpx.URL, error: httpx.TransportError) -> ClientError:
    """Return our error for one of the HTTP library."""
    if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
        return NoAnswerError(f"{url} took a request and did not answer in time ({error!r})")
    return ConnectionFailedError(f"{url} gives no answer ({error!r}); is the service up?")


def read_as(shape: type[T], content: bytes | Mapping[str, Any]) -> T:
    """Return an answer in its shape; fields that a newer service adds are left out."""
    try:
        adapter: TypeAdapter[T] = _adapter_of(shape)  # type: ignore[arg-type]  # types are hashable
        if isinstance(content, bytes):
            return adapter.validate_json(content, extra="ignore")
        return adapter.validate_python(content, extra="ignore")
    except ValidationError as error:
        raise ClientError(
            f"the answer is no {shape.__name__} as this release of the client knows it ({error}); "
            "is the URL that of a Longtail service?"
        ) from error


@lru_cache
def _adapter_of(shape: type) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def reader_of(shape: type[T]) -> Callable[[httpx.Response], T]:
    """Return what reads a successful answer of this shape; it raises as `check_success`."""

    def read(response: httpx.Response) -> T:
        check_success(response)
        return read_as(shape, response.content)

    return read


def check_success(response: httpx.Response) -> None:
    """Do nothing if a request succeeded."""
    if response.is_success:
        return
    try:
        problem = Problem.model_validate_json(response.content, extra="ignore")
    except ValidationError:
        problem = Problem(
            type="about:blank",
            title="Not answered by Longtail",
            status=response.status_code,
            detail=response.content[:_MAX_DETAIL_CHARACTERS].decode(errors="replace"),
        )
    after = response.headers.get("retry-after", "")
    raise ProblemError(problem, float(after) if after.isdecimal() else None)


Result = TypeVar("Result")


class LoopThread:
    """An event loop on a thread, for callers that have none, or one that is not ours."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="longtail-client", daemon=True)
        self._lock = Lock()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of some work on the loop, which the first work starts."""
        with self._lock:
            if self._loop.is_closed():
                work.close()
                raise RuntimeError("the client is closed; make another one")
            if not self._thread.is_alive():
                self._thread.start()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # where the caller was interrupted

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """End the loop after some last work; do nothing where it has ended."""
        if self._loop.is_closed():
            return
        self.run(last())
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
