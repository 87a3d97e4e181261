"""Problem documents (RFC 9457) of errors, without a web framework; gzip bodies within limits."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from longtail.models.errors import (
    BundleNotFoundError,
    LabelNotFoundError,
    LongtailError,
    NotReadyError,
    OverloadedError,
    RequestError,
)
from longtail.models.files.typed_json import problem_in_words
from longtail.service.errors import (
    ChangeError,
    DeadlineError,
    FeedbackConflictError,
    FeedbackStoreError,
)
from longtail.service.schemas.base import Problem, ProblemDetail

PIECE_BYTES = 2**16
MAX_RATIO = 200
"""Largest ratio of unpacked to packed bytes: texts reach 3 to 20, a body that wastes time 1000."""
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
        """Yield the decompressed bytes, at most `PIECE_BYTES` at a time."""
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
        """Check that the body was whole."""
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


MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:longtail:problem:"
MAX_ERRORS = 20
"""Errors that a problem document lists."""
MAX_FAULTS = 1000
"""Errors that are made of one body; of more only their number is reported."""
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
MALFORMED = Kind("malformed-body", 400, "The body is not JSON in UTF-8")
KINDS: dict[type[Exception], Kind] = {
    BadGzipError: MALFORMED,
    RequestError: Kind("request", 422, "The request can't be answered as asked"),
    BundleNotFoundError: Kind("model-not-found", 404, "No such model version is loaded"),
    LabelNotFoundError: Kind("label-not-found", 404, "The model has no such label"),
    ChangeError: Kind("model-change", 409, "The models can't be changed as asked"),
    FeedbackConflictError: Kind("feedback-conflict", 409, "The id of the feedback is taken"),
    FeedbackStoreError: Kind(
        "feedback-store", 503, "The store of feedback can't be used", retry_after_s=5
    ),
    DeadlineError: Kind("deadline", 504, "There was no answer in time", retry_after_s=1),
    OverloadedError: OVERLOADED,
    NotReadyError: Kind("not-ready", 503, "No model is ready", retry_after_s=5),
    LongtailError: Kind("model", 500, "The model can't answer"),
}
"""The kind of each of our errors; a subclass that is not named here is of its base's kind."""
INVALID = Kind("invalid-body", 422, "The body is not what the API expects")
TOO_MANY_ELEMENTS = Kind("too-many-elements", 422, "The body has too many elements")


class KindError(LongtailError):
    """An error that brings its kind of problem with it."""

    def __init__(self, kind: Kind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


def problem_fields(kind: Kind, detail: str) -> dict[str, Any]:
    """Return the fields that each document for a problem has."""
    named = {"type": TYPE_PREFIX + kind.slug, "title": kind.title, "status": kind.status}
    return named | {"detail": detail}


def problem_of(kind: Kind, detail: str, errors: list[ProblemDetail] | None = None) -> Problem:
    """Return the document for a problem."""
    return Problem(**problem_fields(kind, detail), errors=errors)


def kind_of(error: LongtailError) -> Kind:
    """Return the kind that the error brings, or that of its closest class that has one."""
    if isinstance(error, KindError):
        return error.kind
    return next(KINDS[base] for base in type(error).__mro__ if base in KINDS)


def faults_of(error: ValidationError) -> list[dict[str, Any]]:
    """Return the errors of a model as errors of a body: each `loc` begins with "body".

    pydantic makes a kilobyte of each error, so they are counted before they are made: where there
    are more than `MAX_FAULTS`, one error gives their number.
    """
    count = error.error_count()
    if count > MAX_FAULTS:
        detail = f"{count} things are wrong with it; compare it with the schema in /docs"
        return [{"type": "too_many_faults", "loc": ("body",), "msg": detail}]
    return [{**each, "loc": ("body", *each["loc"])} for each in error.errors(include_url=False)]


def describe_invalid(
    found: Sequence[Any], most: int = MAX_ERRORS
) -> tuple[str, list[ProblemDetail]]:
    """Return in words, and with pointers, what pydantic found wrong with a body.

    Args:
        found: Its errors, their places beginning with "body"; at least one.
        most: Errors to list.
    """
    errors = [
        ProblemDetail(pointer=_pointer(problem["loc"]), detail=problem_in_words(problem))
        for problem in found[:most]
    ]
    first = f"{errors[0].pointer or 'the body'}: {errors[0].detail}"
    if len(found) == 1:
        return first, errors
    return f"{len(found)} things are wrong with the request; the first: {first}", errors


def _pointer(location: tuple[int | str, ...]) -> str:
    """Return an RFC 6901 pointer to a place in the body; other places start with their kind."""
    steps = location[1:] if location[0] == "body" else location
    escaped = (str(step).replace("~", "~0").replace("/", "~1") for step in steps)
    return "".join(f"/{step}" for step in escaped)[:_MAX_POINTER_CHARACTERS]
