"""Texts as Python programs hold them: a list, an array, a series, or a data frame with columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from models.errors import RequestError
from models.files.fields import NUL
from models.parts.texts import checked_texts

_TITLED = ("title", "content")


def is_frame(data: object) -> bool:
    """Whether this is a data frame, of pandas or of another library whose frames have columns."""
    return hasattr(data, "columns") and hasattr(data, "__getitem__")


def texts_of(data: Any) -> Sequence[str]:
    """Return the texts of a list, array, series or data frame, in their order.

    Of a data frame that is the column `text`; without one `title` and `content`, or one of the two,
    with a line feed between them, as in a corpus.

    Raises:
        RequestError: It is a single string, an array of several columns or a frame without such a
            column; or one of the texts is no string, is blank, holds NUL, or is not Unicode text.
    """
    if is_frame(data):
        return _without_nul(checked_texts(_of_frame(data)))
    if getattr(data, "ndim", 1) != 1:
        raise RequestError(
            f"texts have the shape {data.shape}, expected one text a row; give one column of it"
        )
    if not isinstance(data, Iterable):
        raise RequestError(f"texts are a {type(data).__name__}, expected a list of texts")
    return _without_nul(checked_texts(cast("Iterable[object]", data)))


def names_of_rows(data: Any) -> Sequence[object]:
    """Return what tells documents apart: the index of a pandas frame or series, else numbers."""
    index: Any = getattr(data, "index", None)
    has_index = index is not None and not callable(index)  # lists have a method of this name
    return list(index) if has_index else range(len(data))


def _without_nul(texts: Sequence[str]) -> Sequence[str]:
    """Return texts that hold no NUL, which no corpus and no request may hold either.

    Raises:
        RequestError: One holds it.
    """
    for number, text in enumerate(texts):
        if NUL in text:
            raise RequestError(f"text {number} holds a NUL character; remove it")
    return texts


def _of_frame(frame: Any) -> list[object]:
    names = [str(name) for name in frame.columns]
    if "text" in names:
        return list(frame["text"])
    found = [list(frame[name]) for name in _TITLED if name in names]
    if not found:
        raise RequestError(
            f"the data frame has the columns {', '.join(names) or '(none)'}; expected 'text', or "
            "'title' and 'content'"
        )
    return [_joined(parts) for parts in zip(*found, strict=True)]


def _joined(parts: tuple[object, ...]) -> object:
    """Return title and content as one text; what is no string stays, to be refused by its place."""
    there = [part for part in parts if not _is_missing(part)]
    strange = [part for part in there if not isinstance(part, str)]
    return strange[0] if strange else "\n".join(str(x) for x in there if str(x).strip())


def _is_missing(part: object) -> bool:
    return part is None or (isinstance(part, float) and part != part)
