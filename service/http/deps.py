"""What routes are given: the parts of the running service, found through the request."""

from __future__ import annotations

import asyncio
import email.message
from collections.abc import Awaitable
from dataclasses import dataclass, field
from threading import BoundedSemaphore
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import Message

from longtail.models.bundle.registry import Author
from longtail.service.engine.engine import Engine
from longtail.service.engine.review import ReviewDesk
from longtail.service.engine.self_check import SelfCheck
from longtail.service.engine.traffic import Slots
from longtail.service.feedback.writer import FeedbackWriter
from longtail.service.http.api_keys import Keys
from longtail.service.http.drift_metrics import DriftMetrics
from longtail.service.http.scopes import log_fields_of, request_id_of_scope
from longtail.service.process.compute_threads import ComputeSetup
from longtail.service.settings import Settings
from longtail.service.telemetry.logs import Tracing
from longtail.service.telemetry.metrics import Telemetry
from longtail.service.versions.redeploy import Redeployer
from longtail.service.versions.serving import ModelManager

LINES_MEDIA_TYPES = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl"})

MAX_READERS = 4
"""Who may read feedback at a time, each over a connection of its own."""

MAX_SEARCHERS = 2
"""Searches for labels that are computed at a time; they compete with the event loop for Python."""

MAX_STREAMS = 16
"""Batch streams at a time; further ones are refused."""

MAX_SEARCHES = 64
"""Searches for labels that are computed or wait."""

_WATCHED_FROM_S = 0.02
"""After which work counts as long, so that a client may hang up before it is done."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of one running service."""

    settings: Settings
    manager: ModelManager
    engine: Engine
    telemetry: Telemetry
    drift: DriftMetrics
    streams: Slots
    label_searches: Slots
    redeployer: Redeployer
    keys: Keys
    compute: ComputeSetup
    tracing: Tracing | None
    self_check: SelfCheck
    feedback: FeedbackWriter | None
    reviews: ReviewDesk | None = None
    feedback_readers: BoundedSemaphore = field(
        default_factory=lambda: BoundedSemaphore(MAX_READERS)
    )

    search_threads: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MAX_SEARCHERS)
    )
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Is set when the service stops and batches are to come to their ends."""

    def check_ready(self) -> None:
        """Do nothing if requests should be sent here.

        Raises:
            NotReadyError: They should not: no model is served, the service is about to stop, or
                requests can't be answered, as after the GPU was lost.
        """
        self.engine.gpu.check()
        self.manager.check_ready()
        self.self_check.check_ready()


def service_of(request: Request) -> Service:
    """Return the service that this request came to."""
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


async def require_lines(request: Request) -> None:
    """Refuse a body that does not say that it is JSON lines.

    Raises:
        HTTPException: With status 415.
    """
    if media_type_of(request) not in LINES_MEDIA_TYPES:
        raise HTTPException(
            415, "Send the body with the header 'Content-Type: application/x-ndjson'"
        )


async def require_known_query(request: Request) -> None:
    """Refuse parameters in the query that the route does not have, such as misspelt ones.

    Raises:
        RequestValidationError: There are some.
    """
    if not request.scope["query_string"]:
        return
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = [field.alias for field in route.dependant.query_params]
    expected = f"expected {', '.join(known)}" if known else "this path takes none"
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        raise RequestValidationError(
            [
                {"type": "unknown_parameter", "loc": ("query", name), "input": None,
                 "msg": f"Unknown parameter; {expected}"}
                for name in unknown
            ]
        )  # fmt: skip


def media_type_of(request: Request) -> str:
    """Return the media type of a request's body, without its parameters."""
    content_type: str = dict(request.scope["headers"]).get(b"content-type", b"").decode("latin-1")
    if content_type == "application/json":  # nearly always, and parsing takes a while
        return content_type
    message = email.message.Message()
    message["content-type"] = content_type
    return message.get_content_type()


async def while_connected(request: Request, work: Awaitable[_Result]) -> _Result:
    """Return the result of some work, which is cancelled when the client hangs up.

    Args:
        request: Its body has been read.
        work: What to wait for.

    Raises:
        HTTPException: With status 499, when the client is gone.
        CancelledError: Somebody else cancels it.
    """
    worker = asyncio.current_task()
    assert worker is not None
    is_gone = False
    gone: asyncio.Task[Message] | None = None

    def hang_up(_: object) -> None:
        nonlocal is_gone
        is_gone = True
        worker.cancel()

    def watch() -> None:
        nonlocal gone
        gone = asyncio.create_task(_received(request))
        gone.add_done_callback(hang_up)

    begin = asyncio.get_running_loop().call_later(_WATCHED_FROM_S, watch)
    try:
        return await work
    except asyncio.CancelledError:
        if is_gone and not worker.uncancel():  # else somebody cancels it besides
            raise HTTPException(499, "The client hung up") from None
        raise
    finally:
        begin.cancel()
        if gone is not None:
            gone.remove_done_callback(hang_up)
            gone.cancel()


async def _received(request: Request) -> Message:
    return await request.receive()


async def _provide_service(request: Request) -> Service:
    return service_of(request)  # not itself the dependency: FastAPI calls `def`s on other threads


ServiceDep = Annotated[Service, Depends(_provide_service)]


async def _provide_author(request: Request) -> Author:
    key = log_fields_of(request.scope).get("key")
    request_id = request_id_of_scope(request.scope)
    return Author(key=None if key is None else str(key), request_id=request_id)


AuthorDep = Annotated[Author, Depends(_provide_author)]
"""Who asks, for the log of changes of the registry."""
