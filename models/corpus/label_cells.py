"""The labels of one document, as its cell or its list holds them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any

from longtail.models.corpus.columns import SUBJECT_URIS, CorpusOptions
from longtail.models.errors import DataError
from longtail.models.files.rows import check_characters, shown
from longtail.models.labels.cells import (
    DELIMITER,
    IsLabel,
    labels_of_cell,
    listed_labels,
    without_last_blanks,
)

logger = logging.getLogger(__name__)

BRACKETED = re.compile(r"<([^<>\s]+)>")
"""A URI, or another id, in angle brackets."""
_ALL_BRACKETED = re.compile(r"\s*(<[^<>\s]+>\s*)+")
MAX_LABELS = 100_000
"""Labels of one document; a cell that may have more is refused before it is divided."""
_MOST_CHARACTERS = 40 * MAX_LABELS
_warned = set[str]()
"""Columns of this process of whose labels a warning said that they have blanks at their ends."""
_KEYS_OF_OBJECTS = ("uri", "id", "label", "name")
"""Keys of an object that stands for a label; the first present key identifies it."""


def labels_of_text(
    cell: str, column: str, options: CorpusOptions, is_label: IsLabel | None = None
) -> list[Any]:
    """Return the labels of a cell of text; they still have to be checked by `label_key`.

    Args:
        cell: None where it is blank.
        column: Its column.
        options: What stands between labels, where that is given.
        is_label: Tells known labels, which win over a delimiter; None: none are known.
    """
    if not cell.strip():
        return []
    check_cell(cell, column)
    if is_label is not None and is_label(cell.strip()):
        return [cell]
    listed = listed_labels(cell)
    if listed is not None:
        _check_may_be_list(cell, column, options, listed)
        return listed
    if options.label_delimiter is None and options.one_row_per_label:
        return [cell]
    return _at_spaces(cell, column, options.label_delimiter) or _divided(
        cell, column, options.label_delimiter, is_label
    )


def check_cell(cell: str, column: str) -> None:
    """Refuse a cell of more labels than a document may have."""
    if len(cell) > _MOST_CHARACTERS or max(map(cell.count, ",; ")) >= MAX_LABELS:
        raise DataError(
            f"{column} has {len(cell):,} characters; expected at most {MAX_LABELS:,} labels and "
            f"{_MOST_CHARACTERS:,} characters a document; is a quote left open, or a line end lost?"
        )


def _at_spaces(cell: str, column: str, delimiter: str | None) -> list[str]:
    """Return the labels of a cell that has white space between them; empty for another."""
    if delimiter is None and _ALL_BRACKETED.fullmatch(cell):
        return BRACKETED.findall(cell)
    if delimiter is None and column == SUBJECT_URIS:
        return cell.split()
    if delimiter is not None and delimiter.isspace():
        return [part for part in cell.split(delimiter) if part.strip()]
    return []


def _check_may_be_list(cell: str, column: str, options: CorpusOptions, listed: list[Any]) -> None:
    """Refuse a list where labels are said to stand otherwise."""
    is_told = {
        "--label-delimiter": options.label_delimiter is not None,
        "--one-row-per-label": options.one_row_per_label,
    }
    given = " and ".join(option for option, is_given in is_told.items() if is_given)
    if listed and given:
        raise DataError(f"{column} is {shown(cell)}, a list; leave out {given}")


def _divided(cell: str, column: str, delimiter: str | None, is_label: IsLabel | None) -> list[Any]:
    if delimiter is None:
        labels = labels_of_cell(cell, is_label)
    else:  # a delimiter may begin the cell: "#a #b", "|a|b|"
        labels = without_last_blanks(cell.strip().removeprefix(delimiter).split(delimiter))
    if any(not label.strip() for label in labels):
        every = "semicolon" if delimiter in {None, DELIMITER} else repr(delimiter)
        which = "semicolons" if delimiter in {None, DELIMITER} else "delimiters"
        raise DataError(
            f"{column} is {shown(cell)}; expected a label before every {every}; remove those "
            f"{which} that have none"
        )
    return labels


def labels_of_value(
    value: object, column: str, options: CorpusOptions, *, may_be_one: bool
) -> list[Any]:
    """Return the labels of a field of JSON: a list, or one label alone where that may be.

    A string that is a list in the form of JSON or Python is read as that list.

    Args:
        value: The field's value.
        column: Its name.
        options: With a delimiter, a string is divided.
        may_be_one: Whether a string or a number is one label.
    """
    if isinstance(value, list):
        _warn_of_blanks(column, value)
        return value
    listed = listed_labels(value) if isinstance(value, str) else None
    if listed is not None:
        return listed
    if isinstance(value, str) and (options.label_delimiter or may_be_one):
        return labels_of_text(value, column, options) if options.label_delimiter else [value]
    if may_be_one and value is None:
        return []
    if may_be_one and type(value) is int:
        return [value]
    is_short = isinstance(value, str) and len(value) < 40
    example = f", as [{json.dumps(value, ensure_ascii=False)}]" if is_short else ""
    raise DataError(f"{column} is {shown(value)}; expected a list{example}")


def _warn_of_blanks(column: str, labels: list[Any]) -> None:
    """Log, once for a column, that a label is read without the blanks at its ends."""
    for label in labels:
        if isinstance(label, str) and label != label.strip() and column not in _warned:
            _warned.add(column)
            logger.warning(
                "%s holds %r, which is read and answered as %r", column, label, label.strip()
            )


def label_key(entry: object, column: str = "labels") -> str:
    """Return the id or the name by which an entry of the labels names one.

    Args:
        entry: A string, trimmed, a URI without its angle brackets; a number; or an object, as Annif
            writes them, with a `uri` or a `label`.
        column: Where it is.
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
