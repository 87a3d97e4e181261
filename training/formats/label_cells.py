"""The labels of one document, as its cell or its list holds them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from models.errors import DataError
from models.files.fields import check_characters, shown
from models.labels.cells import DELIMITER, IsLabel, labels_of_cell
from training.formats.columns import SUBJECT_URIS
from training.formats.options import CorpusOptions

BRACKETED = re.compile(r"<([^<>\s]+)>")
"""A URI, or another id, in angle brackets."""
_ALL_BRACKETED = re.compile(r"\s*(<[^<>\s]+>\s*)+")
_KEYS_OF_OBJECTS = ("uri", "id", "label", "name")
"""Of an object that stands for a label, the first that it has tells which."""


def labels_of_text(
    cell: str, column: str, options: CorpusOptions, is_label: IsLabel | None = None
) -> list[Any]:
    """Return the labels of a cell of text; they still have to be checked by `label_key`.

    Args:
        cell: None where it is blank.
        column: Its column.
        options: What stands between labels, where that is given.
        is_label: Tells known labels, which win over a delimiter; None: none are known.

    Raises:
        DataError: A delimiter has no label on one side.
    """
    if not cell.strip():
        return []
    if options.label_delimiter is None:
        if options.one_row_per_label:
            return [cell]
        if _ALL_BRACKETED.fullmatch(cell):
            return BRACKETED.findall(cell)
        if column == SUBJECT_URIS:
            return cell.split()
    elif options.label_delimiter.isspace():
        return [part for part in cell.split(options.label_delimiter) if part.strip()]
    return _divided(cell, column, options.label_delimiter, is_label)


def _divided(cell: str, column: str, delimiter: str | None, is_label: IsLabel | None) -> list[Any]:
    is_list = delimiter is None and cell.lstrip().startswith("[")
    if delimiter is None:
        labels = labels_of_cell(cell, is_label)
    elif is_label is not None and is_label(cell.strip()):
        labels = [cell]
    else:
        labels = cell.split(delimiter)
    if not is_list and any(isinstance(label, str) and not label.strip() for label in labels):
        every = "semicolon" if delimiter in {None, DELIMITER} else repr(delimiter)
        which = "semicolons" if delimiter in {None, DELIMITER} else "delimiters"
        raise DataError(
            f"{column} is {shown(cell)}; expected a label on each side of every {every}; remove "
            f"those {which} that have none"
        )
    return labels


def labels_of_value(
    value: object, column: str, options: CorpusOptions, *, may_be_one: bool
) -> list[Any]:
    """Return the labels of a field of JSON: a list; one label alone where that may be.

    Args:
        value: Of the field.
        column: Its name.
        options: With a delimiter, a string is divided.
        may_be_one: Whether a string or a number is one label.

    Raises:
        DataError: It is none of these.
    """
    if isinstance(value, list):
        return value
    if isinstance(value, str) and (options.label_delimiter or may_be_one):
        return labels_of_text(value, column, options) if options.label_delimiter else [value]
    if may_be_one and value is None:
        return []
    if may_be_one and type(value) is int:
        return [value]
    is_short = isinstance(value, str) and len(value) < 40
    example = f", as [{json.dumps(value, ensure_ascii=False)}]" if is_short else ""
    raise DataError(f"{column} is {shown(value)}; expected a list{example}")


def label_key(entry: object, column: str = "labels") -> str:
    """Return the id or the name by which an entry of the labels names one.

    Args:
        entry: A string, trimmed, a URI without its angle brackets; a number; or an object, as Annif
            writes them, with a `uri` or a `label`.
        column: Where it stands.

    Raises:
        DataError: It is none of these.
    """
    if isinstance(entry, Mapping):
        named = [entry[name] for name in _KEYS_OF_OBJECTS if entry.get(name)]
        if named and not isinstance(named[0], Mapping):
            return label_key(named[0], column)
    if type(entry) is int:
        return str(entry)
    if not isinstance(entry, str) or not entry.strip():
        raise DataError(f"{column} holds {shown(entry)}; expected ids or names of labels")
    check_characters(column, entry)
    bracketed = BRACKETED.fullmatch(entry.strip())
    return bracketed.group(1) if bracketed and ":" in entry else entry.strip()
