"""Files of documents as `longtail predict` reads them: JSON lines, CSV, or a text a line.

- JSON lines, by any other name than those below: as `POST /v1/batch` takes them, or documents of a
  corpus: `title` and `content` may stand for `text`, and labels are left out.
- CSV (`.csv`, `.tsv`): a column `text`, with or without `title`, or `title` and `content`; `id` if
  there is one, in any case. Other columns are left out. The delimiter is a comma, a semicolon or a
  tab, whichever gives the columns.
- Plain text (`.txt`): one document a line.

Other columns, or fields of JSON lines, can be named (`DocumentColumns`).
Each may be gzip-compressed, with `.gz` added to its name. Every form becomes JSON lines, one at a
time, so that the rest of the work knows no other.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import tee
from pathlib import Path
from typing import Any

from longtail.models.errors import ConfigError, DataError, ignore
from longtail.models.files.outputs import check_readable_file
from longtail.models.files.rows import AS_UTF_8, check_encoding, find_header, not_csv
from longtail.models.files.text_files import reading
from longtail.models.interface.given_texts import fields_of_text, joined, text_of
from longtail.service.schemas.predict import BatchLine
from longtail.service.wire.lines import LineError, LineSplitter
from longtail.service.wire.problems import INVALID

MAX_LINE_BYTES = 2**24
_READ_BYTES = 2**20
_NOT_UTF_8 = re.compile("[\udc80-\udcff]")
_TABLES = frozenset({".csv", ".tsv"})
_LABEL_FIELDS = frozenset({"labels", "target_ind", "target_rel"})
_TITLED, _WITH_TEXT = ("title", "content"), ("title", "text")
_LABELS_LEFT_OUT = "The documents have labels, which are left out."
_COLUMNS = (("text", *_TITLED),)
_MORE_COLUMNS = ("id", "uid", *_LABEL_FIELDS)
_TORN = "\0torn"
"""The field of a row that has other cells than the header: why it can't be read."""
_KNOWN_FIELDS = frozenset(BatchLine.model_fields) | {*_TITLED, "uid"}


@dataclass(frozen=True, slots=True)
class DocumentColumns:
    """Columns of a CSV file, or fields of JSON lines, that are named.

    Attributes:
        text: Joined in this order; empty: `title` and `text`, or else `title` and `content`.
        id: Of the document's id; None: `id` or `uid`.
    """

    text: tuple[str, ...] = ()
    id: str | None = None

    @classmethod
    def named(cls, text_columns: str | None, id_column: str | None) -> DocumentColumns:
        """Return the columns that a command line names, those of the text between commas."""
        names = (name.strip() for name in (text_columns or "").split(","))
        return cls(tuple(name for name in names if name), id_column)

    def __bool__(self) -> bool:
        return bool(self.text or self.id)

    def question_of(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return a document as if its columns had our names; missing columns stay missing."""
        found = dict(fields)
        if self.text:
            parts = [found.pop(name) for name in dict.fromkeys(self.text) if name in found]
            found = {name: x for name, x in found.items() if name not in {"text", *_TITLED}}
            if parts:
                found["text"] = joined(parts)
        if self.id is not None and self.id in found:
            found["id"] = found.pop(self.id)
        return found


_AS_THEY_ARE = DocumentColumns()


def check_source(path: Path, columns: DocumentColumns = _AS_THEY_ARE) -> list[str]:
    """Refuse a file that can't be read, before a model is loaded.

    Args:
        path: The file.
        columns: Those that are named.

    Returns:
        What a person should know of how it is read: sentences.

    Raises:
        ConfigError: It is no file, or can't be opened; or columns are named of a text file.
        DataError: It can't be read, is in another encoding than UTF-8 or UTF-16, or its CSV header
            lacks a column.
    """
    check_readable_file(path, "--input")
    if not path.is_file():
        return []  # a pipe, which can be read only once
    if columns and form_of(path) == ".txt":
        raise ConfigError(
            f"--input {str(path)!r}: a text file has no columns; leave out --text-columns and "
            "--id-column"
        )
    check_encoding(path, _raw_lines(path, int, MAX_LINE_BYTES))
    if is_table(path):
        table = DocumentTable(path, ignore, columns)
        table.close()
        header = table.header
        has_labels = bool(_LABEL_FIELDS & set(header.names))
        remarks = [f"{path}: {remark}" for remark in header.remarks()]
        return [_LABELS_LEFT_OUT, *remarks] if has_labels else remarks
    return [_LABELS_LEFT_OUT] if _LABEL_FIELDS & _first_fields(path) else []


def _first_fields(path: Path) -> frozenset[str]:
    """Return the fields of the first JSON line; none where it is no object, which is told later."""
    first = next((line for line in document_lines(path) if line is None or line.strip()), None)
    try:
        content = json.loads(first or b"null")
    except (ValueError, RecursionError):
        return frozenset()
    return frozenset(content) if isinstance(content, dict) else frozenset()


def columns_as_trained(
    path: Path, columns: DocumentColumns, trained: Sequence[str]
) -> DocumentColumns:
    """Return the columns of the training's texts where none are named and the file has them all.

    Args:
        path: The file.
        columns: Those that are named.
        trained: Columns of the texts that the model was trained on; empty where they had none.
    """
    is_usual = tuple(trained) in {(), _WITH_TEXT, _TITLED}
    if columns.text or is_usual or not path.is_file() or form_of(path) == ".txt":
        return columns
    found = replace(columns, text=tuple(trained))
    try:
        names = _names_in(path, columns if found.text == ("text",) else found)
    except DataError:  # it lacks one of them; the names that are known may do
        return columns
    is_other = {*trained} <= names and (found.text != ("text",) or "title" in names)
    return found if is_other else columns


def _names_in(path: Path, columns: DocumentColumns) -> frozenset[str]:
    """Return the columns of a table, known ones as they are known, or fields of the first line."""
    if not is_table(path):
        return _first_fields(path)
    table = DocumentTable(path, ignore, columns)
    table.close()
    return frozenset(table.header.names)


def document_lines(
    path: Path,
    progress: Callable[[int], object] = ignore,
    max_line_bytes: int = MAX_LINE_BYTES,
    columns: DocumentColumns = _AS_THEY_ARE,
    *,
    is_each_line_text: bool = False,
) -> Iterator[bytes | None]:
    """Yield the documents as JSON lines, blank lines too; None for one that is too long.

    Args:
        path: The file.
        progress: Called with the bytes of the file, as it lies on disk, that were read since.
        max_line_bytes: Most bytes of a line of the file.
        columns: Those that are named.
        is_each_line_text: Whether a blank line of a text file is a document without a text, so that
            the nth document is always that of the nth line.

    Raises:
        DataError: The file can't be read to its end.
    """
    if is_table(path):
        yield from DocumentTable(path, progress, columns)
    elif form_of(path) == ".txt":
        for line in _raw_lines(path, progress, max_line_bytes):
            is_text = line is not None and (is_each_line_text or line.strip())
            yield _json_line({"text": _decoded(line or b"")}) if is_text else line
    elif columns:
        for line in _raw_lines(path, progress, max_line_bytes):
            yield _renamed(line, columns)
    else:
        yield from _raw_lines(path, progress, max_line_bytes)


def _renamed(line: bytes | None, columns: DocumentColumns) -> bytes | None:
    """Return a line with its fields renamed; one that is no object stays, and is told later."""
    try:
        fields = json.loads(line or b"")
    except (ValueError, RecursionError):
        return line
    return _json_line(columns.question_of(fields)) if isinstance(fields, dict) else line


def as_question(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line as `POST /v1/batch` takes it; one of a corpus has its labels left out.

    Of a line with labels, only what is asked about it counts, as in training: fields that mean
    nothing here are left out, too. Other lines keep theirs, so that a misspelt one is refused.

    Raises:
        LineError: It is a row of a CSV file with other cells than the header.
    """
    found = dict(content)
    if _TORN in found:
        raise LineError(INVALID, found[_TORN])
    if _LABEL_FIELDS & found.keys():
        found = {name: value for name, value in found.items() if name in _KNOWN_FIELDS}
    if fields_of_text(found):
        found["text"] = text_of(found)
    if "id" not in found and "uid" in found:
        found["id"] = found["uid"]
    return {name: value for name, value in found.items() if name not in (*_TITLED, "uid")}


class DocumentTable:
    """The documents of a CSV file, as JSON lines.

    Attributes:
        header: The first record, with its columns as they are known.
        written: The cells of the first record, as they are written.
    """

    def __init__(
        self, path: Path, progress: Callable[[int], object], columns: DocumentColumns
    ) -> None:
        """Read the header.

        Raises:
            DataError: It has no column with texts.
        """
        self._path = path
        csv.field_size_limit(MAX_LINE_BYTES)
        self._lines = self._decoded_lines(progress)
        head, lines = tee(self._lines)
        try:
            needed = [(name,) for name in (*columns.text, *([columns.id] if columns.id else []))]
            named = needed if columns.text else [*needed, *_COLUMNS]
            self.header = find_header(head, named, _MORE_COLUMNS, strict=False)
        except DataError as error:
            self.close()
            more = "" if columns else "; name others with --text-columns"
            raise DataError(f"{path}, line 1: {error}{more}") from error
        self._columns = columns
        del head  # else all lines would be kept for it
        self._rows = csv.reader(lines, delimiter=self.header.delimiter)
        self.written = next(self._records())

    def close(self) -> None:
        """Close the file, if it is not read to its end."""
        self._lines.close()

    def rows(self) -> Iterator[list[str]]:
        """Yield the cells of each record that has some, one for each document."""
        return filter(None, self._records())

    def __iter__(self) -> Iterator[bytes | None]:
        names = self.header.names
        known = {"id", "uid", "text", *_TITLED, *self._columns.text, self._columns.id}
        for cells in self.rows():
            if broken := next((x for cell in cells for x in _NOT_UTF_8.findall(cell)), None):
                byte = ord(broken) - 0xDC00
                yield _json_line({_TORN: f"the row is not UTF-8 (byte 0x{byte:02x}); {AS_UTF_8}"})
            elif len(cells) == len(names):
                fields = zip(names, cells, strict=True)
                content = {name: cell for name, cell in fields if name in known}
                yield _json_line(self._columns.question_of(content))
            else:
                # It may be a delimiter within a text: what stands behind it must not get lost.
                yield _json_line({_TORN: (
                    f"the row has {len(cells)} cells; expected {len(names)}, as in the header; put "
                    "a text with delimiters in it between quotes"
                )})  # fmt: skip

    def _records(self) -> Iterator[list[str]]:
        try:
            yield from self._rows
        except csv.Error as error:
            raise DataError(
                f"{self._path}, line {self._rows.line_num}: {not_csv(error)}"
            ) from error

    def _decoded_lines(self, progress: Callable[[int], object]) -> Generator[str, None, None]:
        for number, line in enumerate(_raw_lines(self._path, progress, MAX_LINE_BYTES), 1):
            if line is None:
                raise DataError(
                    f"{self._path}, line {number}: more than {MAX_LINE_BYTES} bytes; shorten it"
                )
            yield _decoded(line) + "\n"


def form_of(path: Path) -> str:
    """Return how a file's name ends, in lower case and without .gz: ".csv", ".jsonl", ..."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def is_table(path: Path) -> bool:
    """Whether a file is CSV by its name."""
    return form_of(path) in _TABLES


def _raw_lines(
    path: Path, progress: Callable[[int], object], max_line_bytes: int
) -> Iterator[bytes | None]:
    """Yield all lines of a file; None for one that is too long."""
    splitter = LineSplitter(max_line_bytes)
    with path.open("rb") as raw, reading(path, raw) as file:
        num_read = 0
        while piece := file.read(_READ_BYTES):
            yield from splitter.feed(piece)
            if raw.seekable():
                progress(raw.tell() - num_read)
                num_read = raw.tell()
    yield from splitter.finish()


def _decoded(line: bytes) -> str:
    # What is not UTF-8 becomes halves of surrogate pairs, which its answer refuses by name.
    return line.removesuffix(b"\r").decode(errors="surrogateescape")


def _json_line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content).encode()
