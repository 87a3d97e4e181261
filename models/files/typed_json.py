"""JSON of our own types, strictly read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter, ValidationError

from longtail.models.files.validation import problem_in_words


def json_forms(
    form: Any, *, exclude_defaults: bool = False
) -> tuple[Callable[[Any], str], Callable[[str | bytes], Any]]:
    """Return two functions: one writes values of a type as JSON, the other reads them.

    Reading raises ValueError where the text is no JSON or not of the type: with the first place
    that is not, as there may be very many.

    Args:
        form: A type that pydantic knows, such as a tuple of data classes.
        exclude_defaults: Whether fields that have their default are not written.
    """
    adapter = TypeAdapter(form)

    def write(value: Any) -> str:
        return adapter.dump_json(value, indent=1, exclude_defaults=exclude_defaults).decode() + "\n"

    def read(text: str | bytes) -> Any:
        try:
            return adapter.validate_json(text, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the content"
            raise ValueError(f"{where}: {problem_in_words(first)}") from None

    return write, read
