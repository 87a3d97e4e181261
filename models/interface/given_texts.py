"""Reads texts from Python objects: a list, an array, a series, or a data frame with columns."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from longtail.models.errors import RequestError
from longtail.models.parts.texts import check_several, checked_texts, joined_text

TITLE, TEXT, CONTENT = "title", "text", "content"


def is_frame(data: object) -> bool:
    """Whether an object is a data frame, of pandas or another library whose frames have columns."""
    return hasattr(data, "columns") and hasattr(data, "__getitem__")


def texts_of(data: Any) -> Sequence[str]:
    """Return the texts of a list, array, series or data frame, in their order.

    Of a data frame, or of mappings in a list, `title` and `text` are read, or else `title` and
    `content`, or the one that is there, with a line feed between them, as in a corpus.
    """
    if is_frame(data):
        return checked_texts(_of_frame(data))
    check_several(data)
    if getattr(data, "ndim", 1) != 1:
        raise RequestError(
            f"texts have the shape {data.shape}, expected one text a row; give one column of it"
        )
    found = data if isinstance(data, list | tuple) else list(data)
    if any(isinstance(each, dict) for each in found):
        found = [text_of(each) if isinstance(each, dict) else each for each in found]
    return checked_texts(found)


def names_of_rows(data: Any) -> Sequence[object]:
    """Return the names of documents: the index of a pandas frame or series, else numbers."""
    index: Any = getattr(data, "index", None)
    has_index = index is not None and not callable(index)  # lists have a method of this name
    return list(index) if has_index else range(len(data))


def _of_frame(frame: Any) -> list[object]:
    names = [str(name) for name in frame.columns]
    if twice := [name for name in (TITLE, TEXT, CONTENT) if names.count(name) > 1]:
        raise RequestError(
            f"the data frame has {names.count(twice[0])} columns {twice[0]!r}; expected each once"
        )
    read = fields_of_text(names)
    if not read:
        raise RequestError(
            f"the data frame has the columns {', '.join(names) or '(none)'}; expected 'text', or "
            "'title' and 'content'"
        )
    cells = [list(frame[name]) for name in read]
    return cells[0] if read == [TEXT] else [joined(parts) for parts in zip(*cells, strict=True)]


def fields_of_text(names: Container[str]) -> list[str]:
    """Return which of some fields, or columns, are read as the text, in this order."""
    body = TEXT if TEXT in names else CONTENT
    return [name for name in (TITLE, body) if name in names]


def text_of(fields: Mapping[str, Any]) -> object:
    """Return the text of a document, or the value found in its place."""
    read = fields_of_text(fields)
    if read == [TEXT]:
        return fields[TEXT]
    return joined(fields[name] for name in read) if read else fields


def joined(parts: Iterable[object]) -> object:
    """Return the cells of a row as one text, as in a corpus; or a cell that is not a string."""
    there = [part for part in parts if not is_missing(part)]
    strange = [part for part in there if not isinstance(part, str)]
    return strange[0] if strange else joined_text(*map(str, there))


def is_missing(part: object) -> bool:
    """Whether a cell is empty: None or NaN."""
    return part is None or (isinstance(part, float) and part != part)
