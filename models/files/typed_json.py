"""JSON of our own types, strictly read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter


def json_forms(form: Any) -> tuple[Callable[[Any], str], Callable[[str], Any]]:
    """Return two functions: one writes values of a type as JSON, the other reads them.

    Reading raises ValueError where the text is no JSON or not of the type.

    Args:
        form: A type that pydantic knows, such as a tuple of data classes.
    """
    adapter = TypeAdapter(form)
    return (
        lambda value: adapter.dump_json(value, indent=1).decode() + "\n",
        lambda text: adapter.validate_json(text, strict=True),
    )
