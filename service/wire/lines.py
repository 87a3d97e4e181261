"""The lines of a batch: how one is read, the line that answers it, and how many had which fate.

JSON text is checked before it is parsed: its encoding (UTF-8 alone), and its amount.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from longtail.models.errors import DataError, LongtailError
from longtail.models.files.typed_json import without_text
from longtail.models.results import Prediction
from longtail.service.schemas.base import SURROGATE, Problem, ProblemDetail
from longtail.service.schemas.predict import BatchEnd, BatchError, BatchSummary
from longtail.service.schemas.requests import BatchLine, Options
from longtail.service.wire.problems import (
    INVALID,
    MALFORMED,
    TOO_MANY_ELEMENTS,
    Kind,
    KindError,
    describe_invalid,
    faults_of,
    kind_of,
    problem_of,
)


@dataclass(slots=True)
class Tally:
    """Counts lines and their answers."""

    num_lines: int = 0
    num_errors: int = 0
    num_truncated: int = 0
    versions: Counter[int] = field(default_factory=Counter)
    """Results by model version."""
    first_error: str = ""
    """Why the first line that has no answer has none, and its `index`, as in the answers."""
    num_guarded: int = 0
    """Cells of a table that get an apostrophe, for a spreadsheet would run them as formulas."""

    @property
    def num_results(self) -> int:
        """How many lines were answered."""
        return self.versions.total()

    def note_result(self, version: int, *, truncated: bool) -> None:
        """Count the result of a line.

        Args:
            version: Version of the model that answered.
            truncated: Whether the text was longer than the scorer reads.
        """
        self.versions[version] += 1
        self.num_truncated += truncated

    def note_error(self, index: int, detail: str) -> None:
        """Count a line that has an error for an answer."""
        self.num_errors += 1
        self.first_error = self.first_error or f"the one with index {index}: {detail}"

    def note_answer(self, answer: bytes) -> None:
        """Count a line by its answer, as it is written."""
        content = json.loads(answer)
        if "error" in content:
            self.note_error(content["index"], content["error"]["detail"])
        else:
            self.note_result(content["version"], truncated=content["truncated"])
        self.num_lines += 1

    def summary(self, error: Problem | None) -> BatchSummary:
        """Return the counts as an answer ends with them.

        Args:
            error: Why it ends early; None where it does not.
        """
        return BatchSummary(
            complete=error is None,
            num_lines=self.num_lines,
            num_results=self.num_results,
            num_errors=self.num_errors,
            num_truncated=self.num_truncated,
            versions=dict(self.versions),
            error=error,
        )


BYTE_ORDER_MARK = b"\xef\xbb\xbf"
INLINE_BYTES = 2**16
"""JSON up to this size is parsed on the event loop: that takes a few milliseconds at most."""
MAX_ELEMENTS = 300_000
"""Most elements of lists and objects in one JSON text; see `check_elements`."""
_KEY_WEIGHT = 10
"""A key of an object takes about as much memory and time as ten numbers of a list."""
# A string that does not end matches, too: else each of its quotes would be tried as a beginning.
_STRING_OR_SIGN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,:\[{]', re.DOTALL)


def read_json(content: bytes, what: str = "The body") -> Any:
    """Return what JSON in UTF-8 says; it has at most `MAX_ELEMENTS` elements."""
    encoding = json.detect_encoding(content)
    if not encoding.startswith("utf-8"):
        raise KindError(MALFORMED, f"{what} is in {encoding[:6].upper()}; send it in UTF-8")
    content = content.removeprefix(BYTE_ORDER_MARK)
    check_elements(content, what)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        detail = f"{what} can't be read as JSON in UTF-8; send one JSON object"
        if isinstance(error, json.JSONDecodeError):
            detail += f"; the first error is at character {error.pos}"
        raise KindError(MALFORMED, detail) from error


def check_elements(content: bytes, what: str = "The body") -> None:
    """Check that a JSON text has at most `MAX_ELEMENTS` elements, without parsing it.

    A few bytes of JSON become a Python object of a hundred bytes, and an error message of a
    thousand, so the number of bytes alone does not bound the work.
    """
    if len(content) <= INLINE_BYTES or _weight_of_signs(content) <= MAX_ELEMENTS:
        return
    weight = 0
    for found in _STRING_OR_SIGN.finditer(content):  # signs inside of strings do not count
        weight += _WEIGHTS.get(found[0], 0)
        if weight > MAX_ELEMENTS:
            raise KindError(
                TOO_MANY_ELEMENTS,
                f"{what} has more than {MAX_ELEMENTS} list items and object fields (a field counts "
                f"as {_KEY_WEIGHT}); send fewer at a time",
            )


_WEIGHTS = {b",": 1, b"[": 1, b"{": 1, b":": _KEY_WEIGHT}


def _weight_of_signs(content: bytes) -> int:
    """Return an upper bound on the weight of the elements: signs inside of strings count, too."""
    return sum(weight * content.count(sign) for sign, weight in _WEIGHTS.items())


_PREDICTION = TypeAdapter(Prediction)
TOO_LONG = Kind("line-too-long", 413, "The line is too long")
_MAX_ID_CHARACTERS = 1000
_MAX_ERRORS = 5
"""Errors that the answer to a wrong line lists: it shall not be much longer than the line."""


class LineError(LongtailError):
    """A line that can't be read.

    Attributes:
        kind: The kind of problem.
        errors: Pointers to what is wrong, where there are any.
        id: What its answer shall be known by, as far as it is known.
    """

    def __init__(
        self,
        kind: Kind,
        detail: str,
        errors: list[ProblemDetail] | None = None,
        known_by: str | int | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.errors = errors
        self.id = known_by


def too_long(max_line_bytes: int) -> LineError:
    """Return the error of a line that was not read to its end."""
    return LineError(
        TOO_LONG,
        f"the line has more than {max_line_bytes} bytes; shorten its text, or leave it out",
    )


def parse_line(
    line: bytes | Mapping[str, Any],
    defaults: Mapping[str, Any],
    adapt: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
) -> BatchLine:
    """Return what a line asks for.

    Args:
        line: One JSON object in UTF-8, or its fields.
        defaults: What is asked for where the line says nothing.
        adapt: Turns an object of another form into one of this form; may raise `DataError`.
    """
    content = line if isinstance(line, Mapping) else _fields_of(line)
    try:
        content = adapt(content)
        return BatchLine.model_validate({**defaults, **content})
    except DataError as error:
        raise LineError(INVALID, str(error), known_by=_id_of(content)) from error
    except ValidationError as error:
        detail, errors = describe_invalid(faults_of(error), _MAX_ERRORS)
        raise LineError(INVALID, detail, errors, _id_of(content)) from error


def _fields_of(line: bytes) -> dict[str, Any]:
    try:
        content = read_json(line, "The line")
    except KindError as error:
        raise LineError(error.kind, str(error)) from error
    if not isinstance(content, dict):
        raise LineError(INVALID, f"the line is {without_text(content)}; expected a JSON object")
    return content


def result_line(
    index: int, line: BatchLine, version: int, scorer: str, prediction: Prediction
) -> bytes:
    """Return the answer to a line."""
    head = {"index": index, "id": line.id, "version": version}
    head |= asked_fields(line, scorer, prediction)
    return to_json(head)[:-1] + b"," + text_json(prediction)[1:] + b"\n"


def asked_fields(asked: Options, scorer: str, prediction: Prediction) -> dict[str, Any]:
    """Return the fields of a `PredictResponse` or `BatchResult` that say how labels were scored."""
    fields = {"scorer": scorer, "correction": prediction.correction, "tail_dial": asked.tail_dial}
    return fields if asked.aim is None else {**fields, "aim": asked.aim}


def text_json(prediction: Prediction) -> bytes:
    """Return a `TextResult` as JSON, without the fields that have their defaults."""
    return _PREDICTION.dump_json(prediction, exclude_defaults=True)


def problem_of_error(error: LongtailError) -> Problem:
    """Return the problem document of one of our errors."""
    if isinstance(error, LineError):
        return problem_of(error.kind, str(error), error.errors)
    return problem_of(kind_of(error), str(error))


def error_line(index: int, known_by: str | int | None, problem: Problem) -> bytes:
    """Return the answer to a line that has no other."""
    return _ascii(BatchError(index=index, id=known_by, error=problem))


def end_line(summary: BatchSummary) -> bytes:
    """Return the last line."""
    return _ascii(BatchEnd(summary=summary))


def _ascii(content: BatchError | BatchEnd) -> bytes:
    # ASCII, because a pointer may hold what UTF-8 can't: lone surrogates.
    return json.dumps(content.model_dump()).encode("ascii") + b"\n"


def _id_of(content: Mapping[str, object]) -> str | int | None:
    found = content.get("id")
    if isinstance(found, str):
        is_unicode = not SURROGATE.search(found)
        return found if is_unicode and len(found) <= _MAX_ID_CHARACTERS else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None
