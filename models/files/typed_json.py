"""JSON of our own types, strictly read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

from longtail.models.files.json_text import MAX_ELEMENTS, check_elements, parse_json
from longtail.models.files.validation import problem_in_words

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
    """Refuse objects with so many members that their errors would fill the memory."""
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
