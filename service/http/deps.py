"""Dependencies of routes: the parts of the running service, and properties of a request.

The ASGI scope of a request holds its path behind a proxy, and what is noted while it is answered:
log fields, its id, and that its client has gone.
"""

from __future__ import annotations

import asyncio
import email.message
from collections.abc import Awaitable
from dataclasses import dataclass, field
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Annotated, TypeVar

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import Message, Scope

from longtail.extensions import Paths, extensions
from longtail.models.bundle.registry import Author
from longtail.service.engine.engine import Engine
from longtail.service.engine.self_check import SelfCheck
from longtail.service.engine.traffic import Slots
from longtail.service.feedback.writer import FeedbackWriter
from longtail.service.http.api_keys import Keys
from longtail.service.process.compute_threads import ComputeSetup
from longtail.service.settings import Settings
from longtail.service.telemetry.metrics import Telemetry
from longtail.service.versions.redeploy import Redeployer
from longtail.service.versions.serving import ModelManager

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

PAGE_PREFIX = "/page/"
DOCS_PATH = "/docs"
EXTENSION_PATHS = tuple(x.paths for x in extensions() if x.paths is not None)
HEALTH_PATHS = frozenset({"/livez", "/readyz", "/metrics"}).union(
    *(paths.health for paths in EXTENSION_PATHS)
)
"""Paths that are asked all the time; their log lines are for debugging."""
_LOG_FIELDS = "log_fields"
_REQUEST_ID = "request_id"
_IS_CLIENT_GONE = "is_client_gone"
CLIENT_GONE_STATUS = 499
"""What nginx, too, logs for a client that hung up before its answer was complete."""


def is_under(path: str, *prefixes: str) -> bool:
    """Whether a path is one of these or below one of them."""
    return any(path == prefix or path.startswith(prefix + "/") for prefix in prefixes)


def rules_of(path: str) -> Paths | None:
    """Return the rules of a path that belongs to an extension."""
    return next((rules for rules in EXTENSION_PATHS if is_under(path, rules.prefix)), None)


def path_of(scope: Scope) -> str:
    """Return the path of a request as routes are declared, without the prefix of a proxy.

    Starlette's router looks at the same path; every decision by path must use it.
    """
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if path == root:
        return ""
    return path[len(root) :] if path.startswith(f"{root}/") and root else path


def add_log_fields(scope: Scope, **fields: object) -> None:
    """Add fields to the log line of a request; never a part of its text."""
    scope.setdefault("state", {}).setdefault(_LOG_FIELDS, {}).update(fields)


def log_fields_of(scope: Scope) -> dict[str, object]:
    """Return the fields that were added to the log line of a request."""
    fields: dict[str, object] = scope.get("state", {}).get(_LOG_FIELDS, {})
    return fields


def note_request_id(scope: Scope, request_id: str) -> None:
    """Note the id that the answer to a request will name."""
    scope.setdefault("state", {})[_REQUEST_ID] = request_id


def note_client_gone(scope: Scope) -> None:
    """Let a request count as one whose client hung up, though its answer had begun as another."""
    scope.setdefault("state", {})[_IS_CLIENT_GONE] = True


def final_status(scope: Scope, status: int) -> int:
    """Return the status that a request is logged and counted with.

    Args:
        scope: The request's ASGI scope.
        status: With which its answer began.
    """
    return CLIENT_GONE_STATUS if scope.get("state", {}).get(_IS_CLIENT_GONE) else status


def route_of(scope: Scope) -> str:
    """Return the path of the route that a request came to, as it was declared; "none" if none."""
    return str(getattr(scope.get("route"), "path", "none"))


def request_id_of_scope(scope: Scope) -> str | None:
    """Return the id of a request, if it has been noted."""
    found: str | None = scope.get("state", {}).get(_REQUEST_ID)
    return found


LINES_MEDIA_TYPES = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl"})

MAX_READERS = 4
"""Who may read feedback at a time, each over a connection of its own."""

MAX_SEARCHERS = 2
"""Searches for labels that are computed at a time; they compete with the event loop for Python."""

MAX_BATCHES = 16
"""Batches at a time; further ones are refused."""

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
    batches: Slots
    label_searches: Slots
    redeployer: Redeployer
    keys: Keys
    compute: ComputeSetup
    tracing: TracerProvider | None
    self_check: SelfCheck
    feedback: FeedbackWriter | None
    feedback_readers: BoundedSemaphore = field(
        default_factory=lambda: BoundedSemaphore(MAX_READERS)
    )

    search_threads: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MAX_SEARCHERS)
    )
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Is set when the service stops and batches are to come to their ends."""

    def check_ready(self) -> None:
        """Do nothing if requests should be sent here."""
        self.engine.gpu.check()
        self.manager.check_ready()
        self.self_check.check_ready()


def service_of(request: Request) -> Service:
    """Return the service that this request came to."""
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


async def require_lines(request: Request) -> None:
    """Refuse a body that does not say that it is JSON lines."""
    if media_type_of(request) not in LINES_MEDIA_TYPES:
        raise HTTPException(
            415, "Send the body with the header 'Content-Type: application/x-ndjson'"
        )


async def require_known_query(request: Request) -> None:
    """Refuse parameters in the query that the route does not have, such as misspelt ones."""
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
