"""JSON of our own types, strictly read; the errors of pydantic in words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

from longtail.models.files.durable import MAX_ELEMENTS, check_elements, parse_json

_MAX_VALUE_CHARACTERS = 60
_WORD = re.compile(r"[\w.,:+-]{0,30}")
"""A string that is shown where a number or a word of a few was expected: never a sentence."""
_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "finite_number": "a finite number",
    "string": "a string",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "dict": "an object",
    "mapping": "an object",
    "model": "an object",
    "model_attributes": "an object",
}
"""What is expected, by what is before `_type` or `_parsing` in pydantic's type of the error."""
_BOUNDS = {
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "string_too_short": "{min_length} or more characters",
    "string_too_long": "{max_length} or fewer characters",
    "too_short": "{min_length} or more items",
    "too_long": "{max_length} or fewer items",
    "literal_error": "{expected}",
    "string_pattern_mismatch": "text of the form {pattern}",
    "is_instance_of": "{class}",
}


def problem_in_words(
    problem: Mapping[str, Any], show: Callable[[object], str] | None = None
) -> str:
    """Describe one entry of a validation error's `errors()`: the value got and the value expected.

    Args:
        problem: With its type, context and perhaps input; what our own validators say stays.
        show: Writes the value; where absent, `without_text`, and `scalar_in_words` where a number,
            true or false, or one of some words was wanted.
    """
    kind = problem["type"]
    if kind == "missing":
        return "missing; add it"
    if kind in {"extra_forbidden", "unexpected_keyword_argument"}:
        return "unknown; remove it, or correct its name"
    expected = _expected(kind, problem.get("ctx") or {})
    if expected is None:
        return str(problem["msg"]).removeprefix("Value error, ")
    if "input" not in problem:
        return f"expected {expected}"
    shown = (show or _shown_of(kind))(problem["input"])
    is_long = len(shown) > _MAX_VALUE_CHARACTERS
    return f"got {shown[:_MAX_SHOWN_CHARACTERS] + '...' if is_long else shown}; expected {expected}"


def without_text(value: object) -> str:
    """Return what a value of JSON is; numbers as they are, but nothing of a text.

    Texts that are sent to the service never appear in its answers and logs.
    """
    if isinstance(value, str | bytes):
        return f"a string of length {len(value)}"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return f"a list of length {len(value)}"
    return json.dumps(value, default=lambda other: type(other).__name__)


def scalar_in_words(value: object) -> str:
    """Return a value of JSON where no text is wanted: short words, too, as they are."""
    is_word = isinstance(value, str) and _WORD.fullmatch(value)
    return json.dumps(value) if is_word else without_text(value)


def _shown_of(kind: str) -> Callable[[object], str]:
    """Return what writes the value of an error: as a whole only where no text is wanted."""
    name, _, suffix = kind.rpartition("_")
    is_scalar = suffix in {"type", "parsing"} and name in {"int", "float", "decimal", "bool"}
    return scalar_in_words if is_scalar or kind == "literal_error" else without_text


def _expected(kind: str, context: Mapping[str, Any]) -> str | None:
    if kind in _BOUNDS:
        return _BOUNDS[kind].format(**{name: _plain(value) for name, value in context.items()})
    name, _, suffix = kind.rpartition("_")
    if kind == "int_from_float":
        name = "int"
    elif suffix not in {"type", "parsing"}:
        name = kind
    return _TYPES.get(name)


def _plain(value: object) -> object:
    """Return a float as people write it: 3 for 3.0, and 1e+15 for a larger one."""
    return f"{value:.12g}" if isinstance(value, float) else value


_MAX_ERRORS = 100_000
"""pydantic collects all errors of an object's members, a kilobyte each."""
_MAX_SHOWN_CHARACTERS = 200
_SEQUENCES = ("list", "tuple", "set", "frozenset")


def json_forms(
    form: Any, *, exclude_defaults: bool = False, max_elements: int = MAX_ELEMENTS
) -> tuple[Callable[[Any], str], Callable[[str | bytes], Any]]:
    """Return two functions: one writes values of a type as JSON, the other reads them.

    Reading raises ValueError where the text is no JSON or not of the type: with the first place
    that is not. It stops at the first wrong element of a list, and a text that is too large is not
    parsed, so that a wrong one takes little more memory than its own size.

    Args:
        form: A type that pydantic knows, such as a tuple of data classes.
        exclude_defaults: Whether fields that have their default are not written.
        max_elements: How many commas a text may have.
    """
    adapter = TypeAdapter(form)
    validator = SchemaValidator(_stopping(adapter.core_schema))

    def write(value: Any) -> str:
        return adapter.dump_json(value, indent=1, exclude_defaults=exclude_defaults).decode() + "\n"

    def read(text: str | bytes) -> Any:
        check_elements(text, max_elements)
        _check_members(text)
        try:
            return validator.validate_json(text, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))[:_MAX_SHOWN_CHARACTERS] or "the content"
            raise ValueError(f"{where}: {problem_in_words(first)}") from None
        except _AbsentError as error:
            raise ValueError(f"{error}: missing; add it") from None

    return write, read


def _stopping(schema: Any) -> Any:
    """Return a schema of pydantic that stops at the first wrong element and at a missing field."""
    if isinstance(schema, list):
        return [_stopping(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _stopping(each) for name, each in schema.items()}
    if found.get("type") in _SEQUENCES:
        found["fail_fast"] = True
    if found.get("type") == "dataclass-field" and found["schema"]["type"] != "default":
        absent = partial(_refuse_absent, found["name"])
        found["schema"] = {"type": "default", "schema": found["schema"], "default_factory": absent}
    return found


class _AbsentError(Exception):
    """A field is missing: pydantic's own error would hold a copy of all other fields."""


def _refuse_absent(name: str) -> NoReturn:
    raise _AbsentError(name)


def _check_members(text: str | bytes) -> None:
    """Refuse objects with too many members, whose errors would fill the memory."""
    colons = text.count(":") if isinstance(text, str) else text.count(b":")
    if colons > _MAX_ERRORS and _most_errors(parse_json(text)) > _MAX_ERRORS:
        raise ValueError(f"an object has about {_MAX_ERRORS} members or more; expected fewer")


def _most_errors(value: Any) -> int:
    """Return how many members of objects may be wrong at once, of a list those of one element."""
    if isinstance(value, list):
        return max(map(_most_errors, value), default=1)
    if isinstance(value, dict):
        return 1 + sum(map(_most_errors, value.values()))
    return 1
