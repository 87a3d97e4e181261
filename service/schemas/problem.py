"""Problem documents (RFC 9457)."""

from __future__ import annotations

from pydantic import (
    BaseModel,
    ConfigDict,
)

from longtail.service.schemas.base import Answer


class ProblemDetail(Answer):
    """One thing that is wrong with a request."""

    pointer: str
    """JSON pointer into the body (RFC 6901), or the name of a parameter."""
    detail: str


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    type: str
    """URI of the kind of problem; programs should compare this, not the words."""
    title: str
    """The kind of problem in words."""
    status: int
    """The HTTP status."""
    detail: str
    """What was wrong this time, and what to do."""
    instance: str | None = None
    """Path of the request."""
    errors: list[ProblemDetail] | None = None
    """What is wrong with the body, up to a limit; only where the body was not valid."""
    error: str | None = None
    """The same as `detail`, where clients of the Open Inference Protocol look; only under `/v2`."""
