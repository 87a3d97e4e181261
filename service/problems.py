"""Errors as problem documents (RFC 9457): one table, the handlers, and their place in OpenAPI."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from models.errors import (
    BundleNotFoundError,
    LabelNotFoundError,
    LongtailError,
    NotReadyError,
    OverloadedError,
    RequestError,
)
from service.admission import DeadlineError, QueueFullError
from service.deps import service_of
from service.model_loading import ChangeError
from service.root_path import path_of
from service.schemas import Problem, ProblemDetail
from service.telemetry import request_id_headers

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:longtail:problem:"
MAX_ERRORS = 20
_MAX_POINTER_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem.

    Attributes:
        slug: Ends the problem's type URI, and labels it in the metrics.
        status: HTTP status.
        title: The kind in words.
        retry_after_s: Seconds after which asking again makes sense; None where it does not.
    """

    slug: str
    status: int
    title: str
    retry_after_s: int | None = None


OVERLOADED = Kind("overloaded", 429, "Too much work is waiting", retry_after_s=1)
INTERNAL = Kind("internal", 500, "The service failed")
KINDS: dict[type[Exception], Kind] = {
    RequestError: Kind("request", 422, "The request can't be answered as asked"),
    BundleNotFoundError: Kind("model-not-found", 404, "No such model version is loaded"),
    LabelNotFoundError: Kind("label-not-found", 404, "The model has no such label"),
    ChangeError: Kind("model-change", 409, "The models can't be changed as asked"),
    DeadlineError: Kind("deadline", 504, "There was no answer in time", retry_after_s=1),
    OverloadedError: OVERLOADED,
    NotReadyError: Kind("not-ready", 503, "No model is ready", retry_after_s=5),
    LongtailError: Kind("model", 500, "The model can't answer"),
}
"""The kind of each of our errors; a subclass that is not named here is of its base's kind."""

INVALID = Kind("invalid-body", 422, "The body is not as the API wants it")
MALFORMED = Kind("malformed-body", 400, "The body is not JSON in UTF-8")
HTTP_KINDS: dict[int, Kind] = {
    400: MALFORMED,
    404: Kind("not-found", 404, "There is nothing at this path"),
    405: Kind("method-not-allowed", 405, "This path has no such method"),
    408: Kind("body-timeout", 408, "The body did not come in time"),
    413: Kind("body-too-large", 413, "The body is too large"),
    499: Kind("client-gone", 499, "The client hung up before its answer was there"),
    415: Kind("media-type", 415, "The body's media type or encoding is not one that is read"),
}
"""The kinds of what the web framework refuses by itself, by status."""

_HTTP_DETAILS = {
    400: "The body can't be read as JSON in UTF-8; send one JSON object",
    404: "Look at /docs for all paths",
    405: "Look at the header 'Allow', or at /docs",
}


INFERENCE_PROTOCOL = "/v2"
PROTOCOL_PATHS = (INFERENCE_PROTOCOL, "/v1/projects")
"""Where paths of protocols begin that say 400 where our own routes say 422."""


class KindError(LongtailError):
    """An error that brings its kind of problem with it."""

    def __init__(self, kind: Kind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class BodyError(HTTPException):
    """A body that is refused, with words of our own."""


def add_handlers(app: FastAPI) -> None:
    """Let every error of an application be answered with a problem document."""
    app.add_exception_handler(LongtailError, _on_longtail_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(Exception, _on_unexpected)


def problem_response(
    request: Request,
    kind: Kind,
    detail: str,
    *,
    errors: list[ProblemDetail] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return the answer for a problem, and count it."""
    service_of(request).telemetry.count_problem(kind.slug)
    path = path_of(request.scope)
    if kind.status == 422 and is_under(path, *PROTOCOL_PATHS):
        kind = replace(kind, status=400)
    problem = problem_of(kind, detail, errors=errors, instance=request.url.path)
    if is_under(path, INFERENCE_PROTOCOL):
        problem = problem.model_copy(update={"error": detail})
    headers = dict(headers or {})
    if kind.retry_after_s is not None:
        headers.setdefault("Retry-After", str(kind.retry_after_s))
    content = _encoded(problem.model_dump(exclude_none=True))
    return Response(content, kind.status, headers, MEDIA_TYPE)


def overload_body(scope: Scope, detail: str) -> bytes:
    """Return the document of an overload, as `problem_response` would; but it takes no time."""
    problem = {
        "type": TYPE_PREFIX + OVERLOADED.slug,
        "title": OVERLOADED.title,
        "status": OVERLOADED.status,
        "detail": detail,
        "instance": scope["path"],
    }
    if is_under(path_of(scope), INFERENCE_PROTOCOL):
        problem["error"] = detail
    return _encoded(problem)


def _encoded(problem: Mapping[str, object]) -> bytes:
    # ASCII, because a path or a pointer may hold what UTF-8 can't: lone surrogates.
    return json.dumps(problem).encode("ascii")


def problem_of(
    kind: Kind,
    detail: str,
    *,
    errors: list[ProblemDetail] | None = None,
    instance: str | None = None,
) -> Problem:
    """Return the document for a problem."""
    return Problem(
        type=TYPE_PREFIX + kind.slug,
        title=kind.title,
        status=kind.status,
        detail=detail,
        instance=instance,
        errors=errors,
    )


def is_under(path: str, *prefixes: str) -> bool:
    """Whether a path is one of these or below one of them."""
    return any(path == prefix or path.startswith(prefix + "/") for prefix in prefixes)


def kind_of(error: LongtailError) -> Kind:
    """Return the kind that the error brings, or that of its closest class that has one."""
    if isinstance(error, KindError):
        return error.kind
    return next(KINDS[base] for base in type(error).__mro__ if base in KINDS)


async def _on_longtail_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, LongtailError)
    kind = kind_of(error)
    if kind.status == 500:
        logger.error("request failed: %s", error, exc_info=error)
    headers = None
    if isinstance(error, QueueFullError):
        headers = {"Retry-After": str(error.retry_after_s)}
    return problem_response(request, kind, str(error), headers=headers)


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if found[0]["type"] == "json_invalid":
        position = found[0]["loc"][-1]
        detail = f"{_HTTP_DETAILS[400]}; the first error is at character {position}"
        return problem_response(request, MALFORMED, detail)
    detail, errors = describe_invalid(found)
    return problem_response(request, INVALID, detail, errors=errors)


def describe_invalid(found: Sequence[Any]) -> tuple[str, list[ProblemDetail]]:
    """Return in words, and as places, what pydantic found wrong with a body.

    Args:
        found: Its errors, their places beginning with "body"; at least one.
    """
    errors = [
        ProblemDetail(pointer=_pointer(problem["loc"]), detail=problem["msg"])
        for problem in found[:MAX_ERRORS]
    ]
    detail = f"{len(found)} things are wrong with the request; the first: {errors[0].detail}"
    if len(found) == 1:
        detail = f"{errors[0].pointer or 'the body'}: {errors[0].detail}"
    return detail, errors


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = error.status_code
    kind = HTTP_KINDS.get(status) or _kind_of_status(status)
    is_ours = isinstance(error, BodyError)
    detail = error.detail if is_ours else _HTTP_DETAILS.get(status, error.detail)
    return problem_response(request, kind, detail, headers=error.headers)


def _kind_of_status(status: int) -> Kind:
    phrase = HTTPStatus(status).phrase
    return Kind(phrase.lower().replace(" ", "-"), status, phrase)


async def _on_unexpected(request: Request, error: Exception) -> Response:
    # The last resort, for errors of middleware; Starlette raises them again after this answer.
    answer = unexpected_problem(request, error)
    answer.headers.update(request_id_headers(request.scope))
    return answer


def unexpected_problem(request: Request, error: Exception) -> Response:
    """Log an error that is a fault of the service, and return the answer to its request."""
    logger.error(
        "unexpected %s in %s", type(error).__name__, request.scope["method"], exc_info=error
    )
    return problem_response(request, INTERNAL, "An unexpected error; its cause is in the log")


def _pointer(location: tuple[int | str, ...]) -> str:
    """Return an RFC 6901 pointer to a place in the body; other places start with their kind."""
    steps = location[1:] if location[0] == "body" else location
    escaped = (str(step).replace("~", "~0").replace("/", "~1") for step in steps)
    return "".join(f"/{step}" for step in escaped)[:_MAX_POINTER_CHARACTERS]


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI declaration of a route's problems; 500 is always among them."""
    return {
        status: {"model": Problem, "description": HTTPStatus(status).phrase}
        for status in (*statuses, 500)
    }


def set_media_types(document: dict[str, Any]) -> dict[str, Any]:
    """Let an OpenAPI document say that errors are problem documents; returns the same one."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if is_under(path, *PROTOCOL_PATHS):
                operation["responses"].pop("422", None)
            for status, response in operation["responses"].items():
                if status[0] in "45":
                    response["content"] = content
    return document
