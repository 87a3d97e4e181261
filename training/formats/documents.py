"""How corpora lie in files: the formats, their file names, and what each line must hold.

- Extreme Classification Repository, raw text: `trn.json`, `dev.json`, `tst.json`, `lbl.json`.
  Documents `{"uid", "title", "content", "target_ind": [label index, ...]}`. Line i of the label
  file, from 0, is label i: `{"uid", "title"}`, and `content`, where given, describes the label.
- JSON lines: `train.jsonl`, `dev.jsonl`, `test.jsonl`: `{"text", "labels": [id or name, ...]}`,
  `id` if you like; `title` and `content` may stand for `text`.
- CSV: `train.csv`, `dev.csv`, `test.csv` with the columns `text` (or `title` and `content`, or one
  of them), `labels` and `id` if you like, in any case. The delimiter is a comma, a semicolon or a
  tab, whichever gives the header its columns. A cell of labels is a JSON list, as in JSON lines,
  or ids and names between semicolons; a name of the label file that holds a semicolon is found
  whole in it.

The last two share a label file, `labels.jsonl` or `labels.csv`. `models.labels.files` reads label
files, `lbl.json` too. Each file may be gzip-compressed, with `.gz` added to its name. Text is
UTF-8, with or without a byte order mark, or UTF-16. Blank lines hold nothing, white space around
ids and names does not count, and fields of documents that are not named here are ignored. The text
of a document with `title` and `content` is the title, a line feed, and the content.

A line that breaks a rule becomes a `BadLine`; a file that can't be read to its end is an error.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from models.errors import DataError
from models.files.bad_lines import BadLine
from models.files.fields import check_characters, id_of, present, shown, string_of
from models.files.rows import Fields, Row, csv_rows, header_of, json_rows
from models.labels.cells import IsLabel, labels_of_cell

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RawDocument:
    """A document as its line has it, its labels not yet looked up.

    Attributes:
        line: Number of its line, from 1.
        id: Its identifier; the line's number where it has none.
        text: What is to be tagged; not blank.
        labels: Label indices, or ids and names.
    """

    line: int
    id: str
    text: str
    labels: tuple[int, ...] | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Format:
    """One way in which a corpus lies in a folder.

    Attributes:
        name: What people call it.
        split_files: File name, without `.gz`, of each split.
        label_files: Names, without `.gz`, that the label file may have.
    """

    name: str
    split_files: Mapping[str, str]
    label_files: tuple[str, ...]


EXTREME_CLASSIFICATION = Format(
    "Extreme Classification Repository",
    {"train": "trn.json", "dev": "dev.json", "test": "tst.json"},
    ("lbl.json",),
)
JSON_LINES = Format(
    "JSON lines",
    {"train": "train.jsonl", "dev": "dev.jsonl", "test": "test.jsonl"},
    ("labels.jsonl", "labels.csv"),
)
CSV = Format(
    "CSV",
    {"train": "train.csv", "dev": "dev.csv", "test": "test.csv"},
    ("labels.jsonl", "labels.csv"),
)
FORMATS = (EXTREME_CLASSIFICATION, JSON_LINES, CSV)

_DOCUMENT_COLUMNS = (("labels",), ("text", "title", "content"))
_Parsed = TypeVar("_Parsed")


def read_documents(
    path: Path, form: Format, is_label: IsLabel | None = None
) -> Iterator[RawDocument | BadLine]:
    """Yield the documents of a file, line by line, and a problem for each line that breaks a rule.

    Args:
        path: File of a split.
        form: Format of the file.
        is_label: Tells the ids and names of the label file; None: there is no such file.

    Raises:
        DataError: The file can't be read to its end, its CSV header lacks a column, or it is one
            JSON value over several lines.
    """
    if form is CSV:
        rows = csv_rows(path, _DOCUMENT_COLUMNS, ("id",))
        return _parsed(rows, partial(_parse_csv_document, is_label=is_label))
    is_indexed = form is EXTREME_CLASSIFICATION
    return _parsed(json_rows(path), _parse_indexed_document if is_indexed else _parse_document)


def tell_of_form(path: Path, form: Format) -> None:
    """Log what was recognised in the header of a CSV file of documents."""
    if form is CSV:
        for remark in header_of(path, _DOCUMENT_COLUMNS, ("id",)).remarks():
            logger.warning("%s: %s", path, remark)


def _parsed(
    rows: Iterator[Row], parse: Callable[[int, Fields], _Parsed]
) -> Iterator[_Parsed | BadLine]:
    for line, fields in rows:
        if isinstance(fields, BadLine):
            yield fields
            continue
        try:
            parsed: _Parsed | BadLine = parse(line, fields)
        except DataError as error:
            parsed = BadLine(line, str(error))
        yield parsed


# What a line must hold: these raise DataError with the bare reason.


def _parse_indexed_document(line: int, fields: Fields) -> RawDocument:
    indices = _list(fields, "target_ind")
    for index in indices:
        if type(index) is not int:  # a bool is an int too
            raise DataError(f"target_ind holds {shown(index)}; expected label indices, as integers")
    text = _text(fields, "title", "content")
    return RawDocument(line, id_of(fields, "uid") or str(line), text, tuple(indices))


def _parse_document(line: int, fields: Fields) -> RawDocument:
    keys = tuple(_key(entry) for entry in _list(fields, "labels"))
    is_titled = "text" not in fields and ("title" in fields or "content" in fields)
    text = _text(fields, *(("title", "content") if is_titled else ("text",)))
    return RawDocument(line, id_of(fields, "id") or str(line), text, keys)


def _parse_csv_document(line: int, fields: Fields, is_label: IsLabel | None) -> RawDocument:
    cell = fields["labels"]
    labels = labels_of_cell(cell, is_label)
    is_split = not cell.lstrip().startswith("[")
    if is_split and any(isinstance(label, str) and not label.strip() for label in labels):
        raise DataError(
            f"labels is {shown(cell)}; expected a label on each side of every semicolon; remove "
            "those semicolons that have none"
        )
    return _parse_document(line, {**fields, "labels": labels})


def _text(fields: Fields, *names: str) -> str:
    if not set(names) & fields.keys():
        raise DataError(f"no {' or '.join(map(repr, names))}; {present(fields)}")
    parts = [string_of(fields, name) for name in names]
    text = "\n".join(part for part in parts if part.strip())
    if not text:
        raise DataError(f"empty text; expected words in {' or '.join(map(repr, names))}")
    return text


def _key(entry: object) -> str:
    if type(entry) is int:
        return str(entry)
    if not isinstance(entry, str) or not entry.strip():
        raise DataError(f"labels holds {shown(entry)}; expected ids or names of labels")
    check_characters("labels", entry)
    return entry.strip()


def _list(fields: Fields, name: str) -> list[Any]:
    if name not in fields:
        raise DataError(f"no {name!r}; {present(fields)}")
    value = fields[name]
    if not isinstance(value, list):
        example = f", as [{json.dumps(value, ensure_ascii=False)}]" if _is_short(value) else ""
        raise DataError(f"{name} is {shown(value)}; expected a list{example}")
    return value


def _is_short(value: object) -> bool:
    return isinstance(value, str) and len(value) < 40
