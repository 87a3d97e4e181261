"""How corpora lie in files: the formats, their file names, and what each line must hold.

Three hold text:

- Extreme Classification Repository, raw text: `trn.json`, `dev.json`, `tst.json`, `lbl.json`.
  Documents `{"uid", "title", "content", "target_ind": [label index, ...]}`. Line i of the label
  file, from 0, is label i: `{"uid", "title"}`, and `content`, where given, describes the label.
- JSON lines: `train.jsonl`, `dev.jsonl`, `test.jsonl`: `{"text", "labels": [id or name, ...]}`,
  `id` if you like; `title` and `content` may stand for `text`.
- CSV: `train.csv`, `dev.csv`, `test.csv` with the columns `text`, `labels` (ids or names between
  semicolons; a label whose name holds a semicolon must be given by its id) and `id` if you like.

The last two share a label file, `labels.jsonl` or `labels.csv`: `id`, `name`, `description` if you
like. Each file may be gzip-compressed, with `.gz` added to its name. Text is UTF-8, with or without
a byte order mark. Blank lines hold nothing, white space around ids and names does not count, and
fields not named here are ignored. The text of a document with `title` and `content` is the title,
a line feed, and the content.

Two hold features instead of text, as `training.sparse_text` says, and are read by
`training.feature_splits`; both as the Extreme Classification Repository gives them out:

- bag of words: `train.txt`, `dev.txt`, `test.txt`, labels and features in one line.
- bag of words, as matrices: `trn_X_Xf.txt`, `dev_X_Xf.txt`, `tst_X_Xf.txt` hold the features, and
  `trn_X_Y.txt` and so on the labels; line i of both is one document.

They may have a file of label names, `Y.txt` or `labels.txt`, and one of feature names, `Xf.txt` or
`features.txt`: one name a line, line i from 0 for index i. Without it an index is its own name. The
ids of their labels are the indices.

A line that breaks a rule becomes a `Problem`; a file that can't be read to its end is an error.
"""

from __future__ import annotations

import csv
import json
import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from models.errors import DataError
from models.labels import Label
from models.manifest import FEATURES, TEXT, Input
from training.problems import Problem
from training.text_files import MAX_LINE_BYTES, lines


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

_Fields = dict[str, Any]
_Row = tuple[int, _Fields | Problem]  # line number, and what the line holds
_Parsed = TypeVar("_Parsed")


def read_documents(path: Path, form: Format) -> Iterator[RawDocument | Problem]:
    """Yield the documents of a file, line by line, and a problem for each line that breaks a rule.

    Raises:
        DataError: The file can't be read to its end, or its CSV header lacks a column.
    """
    if form is CSV:
        return _parsed(_csv_rows(path, ("text", "labels")), _parse_csv_document)
    is_indexed = form is EXTREME_CLASSIFICATION
    return _parsed(_json_rows(path), _parse_indexed_document if is_indexed else _parse_document)


def read_labels(path: Path, form: Format) -> Iterator[RawLabel | Problem]:
    """Yield the labels of a file, line by line, and a problem for each line that breaks a rule.

    Raises:
        DataError: The file can't be read to its end, or its CSV header lacks a column.
    """
    if form is EXTREME_CLASSIFICATION:
        # A label's index is its line: a blank line would shift the labels below it.
        return _parsed(_json_rows(path, keep_blank=True), _parse_indexed_label)
    is_csv = path.name.removesuffix(".gz").endswith(".csv")
    return _parsed(_csv_rows(path, ("id", "name")) if is_csv else _json_rows(path), _parse_label)


def _parsed(
    rows: Iterator[_Row], parse: Callable[[int, _Fields], _Parsed]
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


def _parse_indexed_document(line: int, fields: _Fields) -> RawDocument:
    indices = _list(fields, "target_ind")
    for index in indices:
        if type(index) is not int:  # a bool is an int too
            raise DataError(f"target_ind holds {_shown(index)}; wanted label indices, as integers")
    text = _text(fields, "title", "content")
    return RawDocument(line, _id(fields, "uid") or str(line), text, tuple(indices))


def _parse_document(line: int, fields: _Fields) -> RawDocument:
    keys = tuple(_key(entry) for entry in _list(fields, "labels"))
    is_titled = "text" not in fields and ("title" in fields or "content" in fields)
    text = _text(fields, *(("title", "content") if is_titled else ("text",)))
    return RawDocument(line, _id(fields, "id") or str(line), text, keys)


def _parse_csv_document(line: int, fields: _Fields) -> RawDocument:
    cell = fields["labels"]
    return _parse_document(line, {**fields, "labels": cell.split(";") if cell.strip() else []})


def _parse_indexed_label(line: int, fields: _Fields) -> RawLabel:
    return _raw_label(line, fields, ("uid", "title", "content", "alt"))


def _parse_label(line: int, fields: _Fields) -> RawLabel:
    return _raw_label(line, fields, ("id", "name", "description", "alternative_names"))


def _raw_label(line: int, fields: _Fields, names: tuple[str, str, str, str]) -> RawLabel:
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


def _strings(fields: _Fields, name: str) -> tuple[str, ...]:
    # Empty where the field is missing or null; blank ones are left out. A cell has semicolons.
    values = fields.get(name)
    if values is None:
        return ()
    if isinstance(values, str):
        values = values.split(";")
    if not isinstance(values, list):
        raise DataError(f"{name} is {_shown(values)}; wanted a list of strings")
    found = (_id({name: value}, name) for value in values)
    return tuple(value for value in found if value)


def _text(fields: _Fields, *names: str) -> str:
    if not set(names) & fields.keys():
        raise DataError(f"no {' or '.join(map(repr, names))}; {_present(fields)}")
    parts = [_string(fields, name) for name in names]
    text = "\n".join(part for part in parts if part.strip())
    if not text:
        raise DataError(f"empty text; wanted words in {' or '.join(map(repr, names))}")
    return text


def _string(fields: _Fields, name: str) -> str:
    # Empty where the field is missing or null.
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"{name} is {_shown(value)}; wanted a string")
    _check_characters(name, value)
    return value


def _id(fields: _Fields, name: str) -> str:
    value = fields.get(name)
    return str(value) if type(value) is int else _string(fields, name).strip()


def _key(entry: object) -> str:
    if type(entry) is int:
        return str(entry)
    if not isinstance(entry, str) or not entry.strip():
        raise DataError(f"labels holds {_shown(entry)}; wanted ids or names of labels")
    _check_characters("labels", entry)
    return entry.strip()


def _list(fields: _Fields, name: str) -> list[Any]:
    if name not in fields:
        raise DataError(f"no {name!r}; {_present(fields)}")
    value = fields[name]
    if not isinstance(value, list):
        raise DataError(f"{name} is {_shown(value)}; wanted a list")
    return value


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


def _present(fields: _Fields) -> str:
    return f"the line has {', '.join(map(reprlib.repr, fields)) or 'no fields'}"


# Rows of fields.


def _json_rows(path: Path, *, keep_blank: bool = False) -> Iterator[_Row]:
    for number, line in lines(path):
        if not line.strip() and not keep_blank:
            continue
        try:
            row: _Fields | Problem = _json_fields(line)
        except DataError as error:
            row = Problem(number, str(error))
        yield number, row


def _json_fields(line: bytes) -> _Fields:
    try:
        fields = json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise DataError(
            f"not UTF-8 (byte 0x{line[error.start]:02x} at position {error.start})"
        ) from error
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON ({error.msg} at character {error.colno})") from error
    except (ValueError, RecursionError) as error:  # a number of 4,300 digits; a nest of brackets
        raise DataError(f"not JSON that can be read ({error})") from error
    if not isinstance(fields, dict):
        raise DataError(f"{_shown(fields)}; wanted one JSON object a line")
    return fields


def _csv_rows(path: Path, wanted: tuple[str, ...]) -> Iterator[_Row]:
    csv.field_size_limit(MAX_LINE_BYTES)  # Python's own limit, 131,072, is less than a long text
    # What is not UTF-8 becomes lone surrogates, so that the record, not the file, is refused.
    decoded = (line.decode(errors="surrogateescape") for _, line in lines(path))
    reader = csv.reader(decoded, strict=True)
    header = _csv_header(path, reader, wanted)
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield (
                number,
                Problem(number, f"not CSV ({error}); is a quote left open or not doubled?"),
            )
            continue
        if cells:
            yield number, _csv_fields(number, header, cells)


def _csv_header(path: Path, reader: Iterator[list[str]], wanted: tuple[str, ...]) -> list[str]:
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise DataError(f"{path}, line 1: not CSV ({error})") from error
    if not set(wanted) <= set(header) or len(set(header)) < len(header):
        raise DataError(
            f"{path}, line 1: the header has the columns {header!r}; "
            f"wanted {', '.join(map(repr, wanted))} among them, each once"
        )
    return header


def _csv_fields(number: int, header: list[str], cells: list[str]) -> _Fields | Problem:
    if len(cells) != len(header):
        return Problem(number, f"{len(cells)} cells; wanted {len(header)}, as in the header")
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        return Problem(number, "not UTF-8")
    return dict(zip(header, cells, strict=True))
