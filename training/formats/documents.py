"""How corpora lie in files: the formats, their file names, and what each line must hold.

Three hold text:

- Extreme Classification Repository, raw text: `trn.json`, `dev.json`, `tst.json`, `lbl.json`.
  Documents `{"uid", "title", "content", "target_ind": [label index, ...]}`. Line i of the label
  file, from 0, is label i: `{"uid", "title"}`, and `content`, where given, describes the label.
- JSON lines: `train.jsonl`, `dev.jsonl`, `test.jsonl`: `{"text", "labels": [id or name, ...]}`,
  `id` if you like; `title` and `content` may stand for `text`.
- CSV: `train.csv`, `dev.csv`, `test.csv` with the columns `text` (or `title` and `content`, or one
  of them), `labels` and `id` if you like. The delimiter is a comma, a semicolon or a tab, whichever
  gives the header its columns. A cell of labels is a JSON list, as in JSON lines, or ids and names
  between semicolons; a name of the label file that holds a semicolon is found whole in it.

The last two share a label file, `labels.jsonl` or `labels.csv`: `id`, `name`, `description` if you
like. Each file may be gzip-compressed, with `.gz` added to its name. Text is UTF-8, with or without
a byte order mark, or UTF-16. Blank lines hold nothing, white space around ids and names does not
count, and fields not named here are ignored. The text of a document with `title` and `content` is
the title, a line feed, and the content.

Two hold features instead of text, as `training.formats.xmc_text` says, and are read by
`training.data.feature_splits`; both as the Extreme Classification Repository gives them out:

- bag of words: `train.txt`, `dev.txt`, `test.txt`, labels and features in one line.
- bag of words, as matrices: `trn_X_Xf.txt`, `dev_X_Xf.txt`, `tst_X_Xf.txt` hold the features, and
  `trn_X_Y.txt` and so on the labels; line i of both is one document.

They may have a file of label names, `Y.txt` or `labels.txt`, and one of feature names, `Xf.txt` or
`features.txt`: one name a line, line i from 0 for index i. Without it an index is its own name. The
ids of their labels are the indices.

A line that breaks a rule becomes a `Problem`; a file that can't be read to its end is an error.
"""

from __future__ import annotations

import json
import logging
import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from models.errors import DataError
from models.labels.catalogue import Label
from models.names import FEATURES, TEXT, Input
from training.formats.bad_lines import Problem
from training.formats.label_cells import IsLabel, labels_of_cell
from training.formats.rows import DELIMITERS, Fields, Row, csv_rows, delimiter_of, json_rows

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
class RawLabel:
    """A label, whose parents are still ids, and the number of its line, from 1."""

    line: int
    label: Label


@dataclass(frozen=True, slots=True)
class Format:
    """One way in which a corpus lies in a folder.

    Attributes:
        name: What people call it.
        split_files: File name, without `.gz`, of each split.
        label_files: Names, without `.gz`, that the label file may have.
        input: What the documents are given as.
        matrix_files: File name of each split's labels, where they have a file of their own.
        feature_files: Names that the file of feature names may have.
    """

    name: str
    split_files: Mapping[str, str]
    label_files: tuple[str, ...]
    input: Input = TEXT
    matrix_files: Mapping[str, str] = field(default_factory=dict)
    feature_files: tuple[str, ...] = ()


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
BAG_OF_WORDS = Format(
    "bag of words",
    {"train": "train.txt", "dev": "dev.txt", "test": "test.txt"},
    ("Y.txt", "labels.txt"),
    input=FEATURES,
    feature_files=("Xf.txt", "features.txt"),
)
BAG_OF_WORDS_MATRICES = Format(
    "bag of words, as matrices",
    {"train": "trn_X_Xf.txt", "dev": "dev_X_Xf.txt", "test": "tst_X_Xf.txt"},
    BAG_OF_WORDS.label_files,
    input=FEATURES,
    matrix_files={"train": "trn_X_Y.txt", "dev": "dev_X_Y.txt", "test": "tst_X_Y.txt"},
    feature_files=BAG_OF_WORDS.feature_files,
)
FORMATS = (EXTREME_CLASSIFICATION, JSON_LINES, CSV, BAG_OF_WORDS, BAG_OF_WORDS_MATRICES)

_DOCUMENT_COLUMNS = (("labels",), ("text", "title", "content"))
_Parsed = TypeVar("_Parsed")


def read_documents(
    path: Path, form: Format, is_label: IsLabel | None = None
) -> Iterator[RawDocument | Problem]:
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
        rows = csv_rows(path, _DOCUMENT_COLUMNS)
        return _parsed(rows, partial(_parse_csv_document, is_label=is_label))
    is_indexed = form is EXTREME_CLASSIFICATION
    return _parsed(json_rows(path), _parse_indexed_document if is_indexed else _parse_document)


def read_labels(path: Path, form: Format) -> Iterator[RawLabel | Problem]:
    """Yield the labels of a file, line by line, and a problem for each line that breaks a rule.

    Raises:
        DataError: The file can't be read to its end, or its CSV header lacks a column.
    """
    if form is EXTREME_CLASSIFICATION:
        # A label's index is its line: a blank line would shift the labels below it.
        return _parsed(json_rows(path, keep_blank=True), _parse_indexed_label)
    is_csv = path.name.removesuffix(".gz").endswith(".csv")
    columns = (("id",), ("name",))
    return _parsed(csv_rows(path, columns) if is_csv else json_rows(path), _parse_label)


def tell_of_form(path: Path, form: Format) -> None:
    """Log the delimiter of a CSV file of documents where it is not the usual one."""
    if form is not CSV:
        return
    delimiter = delimiter_of(path, _DOCUMENT_COLUMNS)
    if delimiter != ",":
        logger.warning("%s: columns are taken to stand between %ss", path, DELIMITERS[delimiter])


def _parsed(
    rows: Iterator[Row], parse: Callable[[int, Fields], _Parsed]
) -> Iterator[_Parsed | Problem]:
    for line, fields in rows:
        if isinstance(fields, Problem):
            yield fields
            continue
        try:
            parsed: _Parsed | Problem = parse(line, fields)
        except DataError as error:
            parsed = Problem(line, str(error))
        yield parsed


# What a line must hold: these raise DataError with the bare reason.


def _parse_indexed_document(line: int, fields: Fields) -> RawDocument:
    indices = _list(fields, "target_ind")
    for index in indices:
        if type(index) is not int:  # a bool is an int too
            raise DataError(f"target_ind holds {_shown(index)}; wanted label indices, as integers")
    text = _text(fields, "title", "content")
    return RawDocument(line, _id(fields, "uid") or str(line), text, tuple(indices))


def _parse_document(line: int, fields: Fields) -> RawDocument:
    keys = tuple(_key(entry) for entry in _list(fields, "labels"))
    is_titled = "text" not in fields and ("title" in fields or "content" in fields)
    text = _text(fields, *(("title", "content") if is_titled else ("text",)))
    return RawDocument(line, _id(fields, "id") or str(line), text, keys)


def _parse_csv_document(line: int, fields: Fields, is_label: IsLabel | None) -> RawDocument:
    return _parse_document(line, {**fields, "labels": labels_of_cell(fields["labels"], is_label)})


def _parse_indexed_label(line: int, fields: Fields) -> RawLabel:
    return _raw_label(line, fields, ("uid", "title", "content", "alt"))


def _parse_label(line: int, fields: Fields) -> RawLabel:
    return _raw_label(line, fields, ("id", "name", "description", "alternative_names"))


def _raw_label(line: int, fields: Fields, names: tuple[str, str, str, str]) -> RawLabel:
    id_field, name_field, description_field, alternatives_field = names
    label_id, name = _id(fields, id_field), _string(fields, name_field).strip()
    if not label_id or not name:
        missing = name_field if label_id else id_field
        raise DataError(f"no {missing!r}; {_present(fields)}")
    label = Label(
        label_id,
        name,
        _string(fields, description_field),
        alternative_names=_strings(fields, alternatives_field),
        parents=_strings(fields, "parents"),
    )
    return RawLabel(line, label)


def _strings(fields: Fields, name: str) -> tuple[str, ...]:
    # Empty where the field is missing or null; blank ones are left out. A cell has semicolons.
    values = fields.get(name)
    if values is None:
        return ()
    if isinstance(values, str):
        values = labels_of_cell(values)
    if not isinstance(values, list):
        raise DataError(f"{name} is {_shown(values)}; wanted a list of strings")
    found = (_id({name: value}, name) for value in values)
    return tuple(value for value in found if value)


def _text(fields: Fields, *names: str) -> str:
    if not set(names) & fields.keys():
        raise DataError(f"no {' or '.join(map(repr, names))}; {_present(fields)}")
    parts = [_string(fields, name) for name in names]
    text = "\n".join(part for part in parts if part.strip())
    if not text:
        raise DataError(f"empty text; wanted words in {' or '.join(map(repr, names))}")
    return text


def _string(fields: Fields, name: str) -> str:
    # Empty where the field is missing or null.
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"{name} is {_shown(value)}; wanted a string")
    _check_characters(name, value)
    return value


def _id(fields: Fields, name: str) -> str:
    value = fields.get(name)
    return str(value) if type(value) is int else _string(fields, name).strip()


def _key(entry: object) -> str:
    if type(entry) is int:
        return str(entry)
    if not isinstance(entry, str) or not entry.strip():
        raise DataError(f"labels holds {_shown(entry)}; wanted ids or names of labels")
    _check_characters("labels", entry)
    return entry.strip()


def _list(fields: Fields, name: str) -> list[Any]:
    if name not in fields:
        raise DataError(f"no {name!r}; {_present(fields)}")
    value = fields[name]
    if not isinstance(value, list):
        example = f", as [{json.dumps(value, ensure_ascii=False)}]" if _is_short(value) else ""
        raise DataError(f"{name} is {_shown(value)}; wanted a list{example}")
    return value


def _is_short(value: object) -> bool:
    return isinstance(value, str) and len(value) < 40


def _check_characters(name: str, value: str) -> None:
    # JSON can spell half of a surrogate pair, which no tokenizer and no file takes.
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{name} holds {value[error.start]!r}, half of a surrogate pair; wanted Unicode text"
        ) from error


def _shown(value: object) -> str:
    return f"{reprlib.repr(value)} ({type(value).__name__})"


def _present(fields: Fields) -> str:
    return f"the line has {', '.join(map(reprlib.repr, fields)) or 'no fields'}"
