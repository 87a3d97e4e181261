"""Errors as problem documents (RFC 9457): one table, the handlers, and their place in OpenAPI."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from longtail.models.errors import LongtailError
from longtail.service.errors import QueueFullError
from longtail.service.http.deps import path_of, rules_of, service_of
from longtail.service.schemas.base import Problem, ProblemDetail
from longtail.service.wire.problems import (
    INTERNAL,
    INVALID,
    MALFORMED,
    MEDIA_TYPE,
    Inflater,
    Kind,
    describe_invalid,
    kind_of,
    problem_fields,
)

logger = logging.getLogger(__name__)


HTTP_KINDS: dict[int, Kind] = {
    400: MALFORMED,
    404: Kind("not-found", 404, "There is nothing at this path"),
    405: Kind("method-not-allowed", 405, "This path has no such method"),
    408: Kind("body-timeout", 408, "The body did not come in time"),
    413: Kind("body-too-large", 413, "The body is too large"),
    431: Kind("head-too-large", 431, "The request's line and headers are too large"),
    499: Kind("client-gone", 499, "The client hung up before its answer was there"),
    415: Kind("media-type", 415, "The body's media type or encoding is not one that is read"),
}
"""The kinds of what the web framework refuses by itself, by status."""

_HTTP_DETAILS = {
    404: "Look at /docs for all paths",
    405: "Look at the header 'Allow', or at /docs",
}


class BodyError(HTTPException):
    """A body that is refused, with words of our own."""


def add_handlers(app: FastAPI) -> None:
    """Let every error of an application be answered with a problem document."""
    for kind in (LongtailError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, answer_error)


async def answer_error(request: Request, error: Exception) -> Response:
    """Return the answer to a request that failed; log an error that is a fault of the service."""
    if isinstance(error, LongtailError):
        return _on_longtail_error(request, error)
    if isinstance(error, RequestValidationError):
        return _on_invalid(request, error)
    if isinstance(error, HTTPException):
        return _on_http_exception(request, error)
    logger.error(
        "unexpected %s in %s", type(error).__name__, request.scope["method"], exc_info=error
    )
    return problem_response(request, INTERNAL, "An unexpected error; its cause is in the log")


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
    if kind.status == 422 and rules_of(path_of(request.scope)) is not None:
        kind = replace(kind, status=400)
    headers = dict(headers or {})
    if kind.retry_after_s is not None:
        headers.setdefault("Retry-After", str(kind.retry_after_s))
    content = problem_body(request.scope, kind, detail, errors)
    return Response(content, kind.status, headers, MEDIA_TYPE)


def problem_body(
    scope: Scope, kind: Kind, detail: str, errors: Sequence[ProblemDetail] | None = None
) -> bytes:
    """Return the document for a problem with a request."""
    problem = problem_fields(kind, detail) | {"instance": scope["path"]}
    if errors is not None:
        problem["errors"] = [each.model_dump() for each in errors]
    rules = rules_of(path_of(scope))
    if rules is not None and rules.names_error:
        problem["error"] = detail
    # ASCII, because a path or a pointer may hold what UTF-8 can't: lone surrogates.
    return json.dumps(problem).encode("ascii")


def _on_longtail_error(request: Request, error: LongtailError) -> Response:
    kind = kind_of(error)
    if kind.status == 500:
        logger.error("request failed: %s", error, exc_info=error)
    headers = None
    if isinstance(error, QueueFullError):
        headers = {"Retry-After": str(error.retry_after_s)}
    return problem_response(request, kind, str(error), headers=headers)


def _on_invalid(request: Request, error: RequestValidationError) -> Response:
    detail, errors = describe_invalid(error.errors())
    return problem_response(request, INVALID, detail, errors=errors)


def _on_http_exception(request: Request, error: HTTPException) -> Response:
    status = error.status_code
    kind = HTTP_KINDS.get(status) or _kind_of_status(status)
    is_ours = isinstance(error, BodyError)
    detail = error.detail if is_ours else _HTTP_DETAILS.get(status, error.detail)
    headers = dict(error.headers or {})
    if status == 405:
        headers["Allow"] = ", ".join(_methods_at(request))
    if status == 404 and path_of(request.scope).rstrip("/") != path_of(request.scope):
        detail = f"Ask without the slash at the end of the path. {detail}"
    return problem_response(request, kind, detail, headers=headers)


def _methods_at(request: Request) -> list[str]:
    """Return the methods of all routes at the path; the framework names the first route's."""
    routes = [each for each in request.app.state.routes if isinstance(each, Route)]
    return sorted(
        {
            method
            for route in routes
            if route.matches(request.scope)[0] is not Match.NONE
            for method in route.methods or ()
        }
    )


def _kind_of_status(status: int) -> Kind:
    phrase = HTTPStatus(status).phrase
    return Kind(phrase.lower().replace(" ", "-"), status, phrase)


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
            if rules_of(path) is not None:
                operation["responses"].pop("422", None)
            for status, response in operation["responses"].items():
                if status[0] in "45":
                    response["content"] = content
    return document


ENCODINGS = ("identity", "gzip", "deflate")


def inflater_for(encoding: str) -> Inflater | None:
    """Return what unpacks a body of this Content-Encoding; None where it is "identity"."""
    encoding = encoding.strip().lower()
    if encoding not in ENCODINGS:
        known = ", ".join(ENCODINGS)
        detail = f"The body's Content-Encoding is {encoding[:40]!r}; expected one of {known}"
        raise BodyError(415, detail, {"Accept-Encoding": known})
    return None if encoding == "identity" else Inflater()


def accepts_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding header asks for gzip."""
    for choice in accepted.lower().split(","):
        name, _, weight = choice.partition(";")
        if name.strip() in {"gzip", "*"}:
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False
