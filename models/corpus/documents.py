"""The documents of a split, out of files in any of the forms of `longtail.models.corpus.forms`.

Blank lines hold nothing, white space around ids and names does not count, and columns that are not
read are ignored. Texts of several columns are joined by a line feed, blank ones left out. A label
is an id or a name; a URI may stand in angle brackets.

A line that breaks a rule becomes a `BadLine`; a file that can't be read to its end is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

from longtail.models.corpus.annif import full_text_rows, is_short_text, short_text_rows
from longtail.models.corpus.arrow import arrow_rows, column_names
from longtail.models.corpus.columns import (
    ID_NAMES,
    LABEL_NAMES,
    LABELS,
    SINGLE_LABEL,
    TEXT_NAMES,
    ColumnChoiceError,
    ColumnNames,
    find_columns,
)
from longtail.models.corpus.forms import (
    ARROW,
    CSV,
    EXTREME_CLASSIFICATION,
    FULL_TEXT,
    JSON_LINES,
    PARQUET,
    TSV,
)
from longtail.models.corpus.hashed_parts import part_of_document
from longtail.models.corpus.label_cells import label_key, labels_of_text, labels_of_value
from longtail.models.corpus.options import CorpusOptions
from longtail.models.corpus.pairs import grouped_rows
from longtail.models.corpus.raw import DocumentSource, EmptyText, RawDocument
from longtail.models.errors import DataError
from longtail.models.files.rows import (
    Columns,
    CsvHeader,
    Fields,
    Row,
    csv_rows,
    header_of,
    id_of,
    json_rows,
    present,
    shown,
    string_of,
)
from longtail.models.files.text_files import BadLine, encoding_of
from longtail.models.labels.cells import IsLabel, python_list
from longtail.models.parts.texts import joined_text

_PEEKED = 100  # lines from which columns, and the form of labels, are told
_PLAIN = ColumnNames(("text",), LABELS, "id")
_INDEXED = ColumnNames(("title", "content"), "target_ind", "uid")


class _EmptyTextError(DataError):
    """A document has no text."""


def read_documents(
    source: DocumentSource, is_label: IsLabel | None = None
) -> Iterator[RawDocument | BadLine]:
    """Yield the documents of a split, line by line, and a problem for each line that breaks a rule.

    A file is parsed once; later passes read what the first whole one kept. Of a file that is
    divided by a hash, lines that break a rule are in the training split.

    Args:
        source: Where the documents lie.
        is_label: Tells the ids and names of the label file; None: there is no such file.

    Raises:
        DataError: A file can't be read to its end, lacks a column, or several may be meant, or it
            is one JSON value over several lines; rows of one document stand apart, where each has
            one label.
        ConfigError: The folder of temporary files has no room for what is kept.
    """

    def parse() -> Iterator[RawDocument | BadLine]:
        found = _documents(source, is_label)
        return grouped_rows(source.place, found) if source.options.one_row_per_label else found

    found = source.spools[is_label is None].documents(parse)
    division = source.division
    if division is None:
        return found
    return (
        item
        for item in found
        if (part_of_document(item, division) if isinstance(item, RawDocument) else "train")
        == source.part
    )


def columns_of(source: DocumentSource) -> ColumnNames:
    """Return the columns, or fields, that the documents of a split are read from.

    Raises:
        DataError: The first file can't be read, or as `read_documents`.
    """
    path, form, options = source.paths[0], source.form, source.options
    if form is EXTREME_CLASSIFICATION:
        return _INDEXED
    if form in (PARQUET, ARROW):
        return _columns_of(path, column_names(path), options)
    if form is JSON_LINES:
        return _lenient_columns(tuple(_first_names(path)), options)
    if form in (CSV, TSV) and not (form is TSV and is_short_text(path, options)):
        return _columns_of(path, _header_of(path, options).names, options)
    return _PLAIN


def recognised(source: DocumentSource) -> list[str]:
    """Return what is recognised in the files of a split and not just read, for the log.

    Raises:
        DataError: The first file can't be read, or as `read_documents`.
    """
    path, form, options = source.paths[0], source.form, source.options
    encoding = encoding_of(path) if form not in (PARQUET, ARROW) else None
    found = [] if encoding is None else [f"its text is read as {encoding.upper()}"]
    if form is TSV and is_short_text(path, options):
        return [*found, "read as Annif's short texts: a text, a tab, its labels; without a header"]
    if form in (CSV, TSV):
        header = _header_of(path, options)
        columns = _columns_of(path, header.names, options)
        remarks = [x for x in header.remarks() if form is CSV or "tabs" not in x]
        rows = islice(csv_rows(path, _needed(options), _optional(options)), _PEEKED)
        lists = _remarks_on_lists(rows, columns.labels)
        return [*found, *remarks, *columns.remarks(header.names, options), *lists]
    if form is JSON_LINES:
        names = _first_names(path)
        columns = _lenient_columns(tuple(names), options)
        lists = _remarks_on_lists(islice(json_rows(path), _PEEKED), columns.labels)
        return [*found, *columns.remarks(names, options), *lists]
    if form in (PARQUET, ARROW):
        names = column_names(path)
        return [*found, *_columns_of(path, names, options).remarks(names, options)]
    return found


def _remarks_on_lists(rows: Iterable[Row], column: str) -> list[str]:
    """Return that labels are read as lists of Python, where one of these rows has one."""
    cells = (fields.get(column) for _, fields in rows if not isinstance(fields, BadLine))
    if not any(isinstance(cell, str) and python_list(cell.strip()) for cell in cells):
        return []
    return [f"cells of {column!r} are read as lists, as Python and pandas write them: ['a', 'b']"]


def _documents(source: DocumentSource, is_label: IsLabel | None) -> Iterator[RawDocument | BadLine]:
    form, options, path = source.form, source.options, source.paths[0]
    if form is EXTREME_CLASSIFICATION:
        return _parsed(json_rows(path), _parse_indexed)
    if form is FULL_TEXT:
        return _parsed(full_text_rows(source.paths), _parse_full_text)
    if form in (PARQUET, ARROW):
        columns = _columns_of(path, column_names(path), options)
        others = [name for name in (columns.id, columns.group) if name]
        read = [*columns.text, columns.labels, *others]
        rows = arrow_rows(source.paths, read)
        return _parsed(rows, partial(_parse_cells, columns, options, is_label))
    if form is JSON_LINES:
        _check_choices(path, options)
        return _parsed(json_rows(path), partial(_parse_json, options))
    if form is TSV and is_short_text(path, options):
        return _parsed(short_text_rows(path, options), _parse_plain)
    return _table_documents(path, options, is_label)


def _table_documents(
    path: Path, options: CorpusOptions, is_label: IsLabel | None
) -> Iterator[RawDocument | BadLine]:
    needed, optional = _needed(options), _optional(options)
    columns = _columns_of(path, _header_of(path, options).names, options)
    rows = csv_rows(path, needed, optional)
    return _parsed(rows, partial(_parse_cells, columns, options, is_label))


def _parsed(
    rows: Iterator[Row], parse: Callable[[int, Fields], RawDocument]
) -> Iterator[RawDocument | BadLine]:
    for line, fields in rows:
        if isinstance(fields, BadLine):
            yield fields
            continue
        try:
            parsed: RawDocument | BadLine = parse(line, fields)
        except _EmptyTextError as error:
            parsed = EmptyText(line, str(error))
        except DataError as error:
            parsed = BadLine(line, str(error))
        yield parsed


# Which columns.


def _header_of(path: Path, options: CorpusOptions) -> CsvHeader:
    """Return the header of a CSV file."""
    try:
        return header_of(path, _needed(options), _optional(options))
    except DataError as error:
        unnamed = {
            "--text-columns": not options.text_columns,
            "--label-column": not options.label_column,
        }
        missing = " and ".join(option for option, is_missing in unnamed.items() if is_missing)
        more = f"; name others with {missing}" if missing and "expected" in str(error) else ""
        raise DataError(f"{error}{more}") from error


def _needed(options: CorpusOptions) -> Columns:
    labels = LABEL_NAMES if options.label_column is None else (options.label_column,)
    texts: list[tuple[str, ...]] = [(name,) for name in options.text_columns] or [TEXT_NAMES]
    others = [(name,) for name in (options.id_column, options.group_column) if name]
    return [labels, *texts, *others]


def _optional(options: CorpusOptions) -> tuple[str, ...]:
    return () if options.id_column else ID_NAMES


def _columns_of(
    path: Path, names: list[str] | tuple[str, ...], options: CorpusOptions
) -> ColumnNames:
    """Return the columns of a file."""
    try:
        return find_columns(names, options)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _first_names(path: Path) -> list[str]:
    rows = islice(json_rows(path), _PEEKED)
    return list(dict.fromkeys(x for _, row in rows if not isinstance(row, BadLine) for x in row))


def _check_choices(path: Path, options: CorpusOptions) -> None:
    """Refuse a file of JSON lines whose first lines lack a column that is named, or have several.

    Raises:
        DataError: It is one; a column that no one named is missed line by line.
    """
    try:
        find_columns(_first_names(path), options)
    except ColumnChoiceError as error:
        raise DataError(f"{path}, first {_PEEKED} lines: {error}") from error
    except DataError:
        return


@lru_cache(maxsize=256)
def _lenient_columns(names: tuple[str, ...], options: CorpusOptions) -> ColumnNames:
    """Return the columns of a line of JSON; those that were named may be missing, but not all."""
    text = tuple(name for name in options.text_columns if name in names) or options.text_columns
    found_id = options.id_column if options.id_column in names else None
    try:
        return find_columns(names, replace(options, text_columns=text, id_column=found_id))
    except ColumnChoiceError:
        raise
    except DataError:
        return _PLAIN


# What a line must hold: these raise DataError with the bare reason.


def _parse_indexed(line: int, fields: Fields) -> RawDocument:
    indices = _list(fields, "target_ind")
    for index in indices:
        if type(index) is not int:  # a bool is an int too
            raise DataError(f"target_ind holds {shown(index)}; expected label indices, as integers")
    text = _text(fields, *_INDEXED.text)
    return RawDocument(line, id_of(fields, "uid") or None, text, tuple(indices))


def _parse_plain(line: int, fields: Fields) -> RawDocument:
    return _document(line, fields, _PLAIN, fields[LABELS])


def _parse_full_text(line: int, fields: Fields) -> RawDocument:
    try:
        return _parse_plain(line, fields)
    except DataError as error:
        raise type(error)(f"{fields['id']}: {error}") from error


def _parse_json(options: CorpusOptions, line: int, fields: Fields) -> RawDocument:
    columns = _lenient_columns(tuple(fields), options)
    if columns.labels not in fields:
        raise DataError(f"no {columns.labels!r}; {present(fields)}")
    may_be_one = columns.labels == SINGLE_LABEL or options.one_row_per_label
    value = fields[columns.labels]
    labels = labels_of_value(value, columns.labels, options, may_be_one=may_be_one)
    return _document(line, fields, columns, labels)


def _parse_cells(
    columns: ColumnNames,
    options: CorpusOptions,
    is_label: IsLabel | None,
    line: int,
    fields: Fields,
) -> RawDocument:
    value = fields[columns.labels]
    if isinstance(value, str):
        labels = labels_of_text(value, columns.labels, options, is_label)
    else:
        labels = labels_of_value(value, columns.labels, options, may_be_one=True)
    return _document(line, fields, columns, labels)


def _document(line: int, fields: Fields, columns: ColumnNames, labels: list[Any]) -> RawDocument:
    keys = tuple(label_key(entry, columns.labels) for entry in labels)
    found_id = id_of(fields, columns.id) if columns.id else ""
    group = id_of(fields, columns.group) if columns.group else None
    return RawDocument(line, found_id or None, _text(fields, *columns.text), keys, group)


def _text(fields: Fields, *names: str) -> str:
    if not set(names) & fields.keys():
        raise DataError(f"no {' or '.join(map(repr, names))}; {present(fields)}")
    text = joined_text(*(string_of(fields, name) for name in names))
    if not text:
        raise _EmptyTextError(f"empty text; expected words in {' or '.join(map(repr, names))}")
    return text


def _list(fields: Fields, name: str) -> list[Any]:
    if name not in fields:
        raise DataError(f"no {name!r}; {present(fields)}")
    value = fields[name]
    if not isinstance(value, list):
        raise DataError(f"{name} is {shown(value)}; expected a list")
    return value
