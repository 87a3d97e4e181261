"""JSON of our own types, strictly read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

from longtail.models.files.json_text import check_elements, parse_json
from longtail.models.files.validation import problem_in_words

_MAX_ERRORS = 100_000
"""pydantic collects all errors of an object's members, a kilobyte each."""
_ERRORS_OF_OBJECT = 4
"""An object that lacks fields has about so many."""
_SEQUENCES = ("list", "tuple", "set", "frozenset")


def json_forms(
    form: Any, *, exclude_defaults: bool = False
) -> tuple[Callable[[Any], str], Callable[[str | bytes], Any]]:
    """Return two functions: one writes values of a type as JSON, the other reads them.

    Reading raises ValueError where the text is no JSON or not of the type: with the first place
    that is not. It stops at the first wrong element of a list, and a text that is too large is not
    parsed, so that a wrong one takes little more memory than its own size.

    Args:
        form: A type that pydantic knows, such as a tuple of data classes.
        exclude_defaults: Whether fields that have their default are not written.
    """
    adapter = TypeAdapter(form)
    validator = SchemaValidator(_stopping(adapter.core_schema))

    def write(value: Any) -> str:
        return adapter.dump_json(value, indent=1, exclude_defaults=exclude_defaults).decode() + "\n"

    def read(text: str | bytes) -> Any:
        check_elements(text)
        _check_members(text)
        try:
            return validator.validate_json(text, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the content"
            raise ValueError(f"{where}: {problem_in_words(first)}") from None

    return write, read


def _stopping(schema: Any) -> Any:
    """Return a schema of pydantic whose sequences stop at their first wrong element."""
    if isinstance(schema, list):
        return [_stopping(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _stopping(each) for name, each in schema.items()}
    return found | {"fail_fast": True} if found.get("type") in _SEQUENCES else found


def _check_members(text: str | bytes) -> None:
    """Refuse objects with so many members that their errors would fill the memory."""
    colons = text.count(":") if isinstance(text, str) else text.count(b":")
    if colons * _ERRORS_OF_OBJECT > _MAX_ERRORS and _most_errors(parse_json(text)) > _MAX_ERRORS:
        raise ValueError(f"an object has about {_MAX_ERRORS} members or more; expected fewer")


def _most_errors(value: Any) -> int:
    """Return how many errors a value may have at most, of a list those of one element."""
    if isinstance(value, list):
        return max(map(_most_errors, value), default=1)
    if isinstance(value, dict):
        return _ERRORS_OF_OBJECT + sum(map(_most_errors, value.values()))
    return 1
