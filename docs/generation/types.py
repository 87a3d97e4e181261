"""Types of pydantic fields in a user's words: choices, bounds, sections."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_NAMES = {
    int: "whole number", float: "number", str: "text", bool: "true or false", Path: "path"
}  # fmt: skip


def describe(annotation: Any, metadata: tuple[Any, ...] = ()) -> str:
    """Return the values that a field takes: choices in code type, numbers with their bounds."""
    names = [name for part in members(annotation) if (name := _name(part))]
    limits = _bounds([*metadata, *_metadata_of(annotation)])
    text = " or ".join(dict.fromkeys(names))
    return f"{text}, {limits}" if limits else text


def members(annotation: Any) -> Iterator[Any]:
    """Yield the alternatives of a type, unions and annotations unfolded."""
    if get_origin(annotation) is Annotated:
        yield from members(get_args(annotation)[0])
    elif get_origin(annotation) in {Union, types.UnionType}:
        for part in get_args(annotation):
            yield from members(part)
    else:
        yield annotation


def sections_of(annotation: Any) -> list[type[BaseModel]]:
    """Return the pydantic models that a type is made of."""
    return [part for part in members(annotation) if _is_model(part)]


def default_of(field: FieldInfo) -> Any:
    """Return a field's default; `...` where it has none."""
    return ... if field.is_required() else field.get_default(call_default_factory=True)


def _is_model(part: Any) -> bool:
    return isinstance(part, type) and issubclass(part, BaseModel)


def _name(part: Any) -> str:
    if part is type(None):
        return ""
    if get_origin(part) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(part))
    if get_origin(part) in {tuple, list}:
        return f"list of {describe(get_args(part)[0])}"
    if _is_model(part):
        return "section"
    return _NAMES.get(part, getattr(part, "__name__", str(part)))


def _metadata_of(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        return [*_metadata_of(inner), *metadata]
    if get_origin(annotation) in {Union, types.UnionType}:
        return [item for part in get_args(annotation) for item in _metadata_of(part)]
    return []


def _bounds(metadata: Iterable[object]) -> str:
    """Return the bounds that a pydantic field's metadata gives, as in "1 to 64"."""
    found: dict[str, object] = {}
    for item in metadata:
        for name in ("ge", "gt", "le", "lt"):
            limit = getattr(item, name, None)
            if limit is not None:
                found[name] = limit
    lower = f"{found['ge']}" if "ge" in found else f"above {found['gt']}" if "gt" in found else ""
    upper = f"{found['le']}" if "le" in found else f"below {found['lt']}" if "lt" in found else ""
    if lower and upper:
        return f"{lower} to {upper}"
    if "ge" in found:
        return f"at least {lower}"
    return lower or (f"at most {upper}" if "le" in found else upper)
