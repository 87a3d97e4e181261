"""The documents of a split, out of files in any of the forms of `longtail.models.corpus.forms`.

Blank lines hold nothing, white space around ids and names does not count, and columns that are not
read are ignored. Texts of several columns are joined by a line feed, blank ones left out. A label
is an id or a name; a URI may be in angle brackets.

A line that breaks a rule becomes a `BadLine`; a file that can't be read to its end is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
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
    UID,
    ColumnChoiceError,
    ColumnNames,
    CorpusOptions,
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
from longtail.models.corpus.label_cells import (
    MAX_LABELS,
    label_key,
    labels_of_text,
    labels_of_value,
)
from longtail.models.corpus.raw import (
    DocumentSource,
    EmptyText,
    RawDocument,
    hash_of,
    part_of_document,
)
from longtail.models.errors import DataError, ignore
from longtail.models.files.rows import (
    CsvTable,
    Fields,
    Row,
    id_of,
    json_rows,
    present,
    shown,
    string_of,
)
from longtail.models.files.text_files import BadLine, encoding_of
from longtail.models.labels.cells import IsLabel, python_list
from longtail.models.parts.texts import joined_text

MAX_TEXT_CHARACTERS = 10_000_000
"""Longest document: ten thick books."""
_PEEKED = 100  # lines inspected to detect columns and the label format
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
    """

    def parse() -> Iterator[RawDocument | BadLine]:
        found = _documents(source, is_label)
        if not source.options.one_row_per_label:
            return found
        rows = _documents(source, is_label)
        return grouped_rows(source.place, found, by_text=_ids_differ(rows))

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


def columns_of(source: DocumentSource, names: Sequence[str] | None = None) -> ColumnNames:
    """Return the columns, or fields, that the documents of a split are read from."""
    if source.form is EXTREME_CLASSIFICATION:
        return _INDEXED
    names = names_in(source) if names is None else names
    if names is None:
        return _PLAIN
    options, reads_labels = source.options, source.reads_labels
    try:
        if source.form is JSON_LINES:
            return line_columns(tuple(names), options, reads_labels=reads_labels)
        return find_columns(names, options, reads_labels=reads_labels)
    except DataError as error:
        raise DataError(f"{source.paths[0]}: {error}") from error


def names_in(source: DocumentSource) -> Sequence[str] | None:
    """Return the names of all columns, or fields, of documents; None where none can be chosen."""
    if source.form in (PARQUET, ARROW):
        return column_names(source.paths[0])
    if source.form is JSON_LINES:
        return _first_names(source.paths[0])
    return table_of(source).header.names if is_table(source) else None


def recognised(source: DocumentSource) -> list[str]:
    """Describe the recognised columns of a split's files for the log."""
    path, form, options = source.paths[0], source.form, source.options
    is_own = form.rows is not None
    encoding = encoding_of(path) if form not in (PARQUET, ARROW) and not is_own else None
    found = [] if encoding is None else [f"its text is read as {encoding.upper()}"]
    names = names_in(source)
    if names is None:
        is_short = ["read as Annif's short texts: a text, a tab, its labels; without a header"]
        return [*found, *(is_short if form is TSV else [])]
    columns = columns_of(source, names)
    if is_table(source):
        remarks = table_of(source).header.remarks()
        found += [x for x in remarks if form is CSV or "tabs" not in x]
    rows = _first_rows(source, names) if source.reads_labels else []
    unread = [name for name in names if name and name not in columns.read]
    if not source.reads_labels:
        unread = [name for name in unread if name in TEXT_NAMES and not options.text_columns]
    found += columns.remarks(options, {name: [row.get(name) for row in rows] for name in unread})
    cells = [row.get(columns.labels) for row in rows if form not in (PARQUET, ARROW)]
    if any(isinstance(cell, str) and python_list(cell.strip()) for cell in cells):
        found.append(
            f"cells of {columns.labels!r} are read as lists, as Python and pandas write them: "
            "['a', 'b']"
        )
    return found


def _first_rows(source: DocumentSource, names: Sequence[str]) -> list[Fields]:
    if source.form in (PARQUET, ARROW):
        rows = arrow_rows(source.paths[:1], names)
    else:
        is_json = source.form is JSON_LINES
        rows = json_rows(source.paths[0]) if is_json else table_of(source).rows()
    with suppress(DataError):  # the whole pass says what is wrong
        return [row for _, row in islice(rows, _PEEKED) if isinstance(row, dict)]
    return []


def rows_of(
    source: DocumentSource, progress: Callable[[int], object] = ignore
) -> tuple[ColumnNames, Iterator[Row]]:
    """Return the columns of documents, and their rows; a line of JSON has columns of its own.

    Args:
        source: Where the documents lie; of a table, the only file is opened once.
        progress: Called with the bytes of a table, or of short texts, that were read since.
    """
    form, options, path = source.form, source.options, source.paths[0]
    if form is EXTREME_CLASSIFICATION:
        return _INDEXED, json_rows(path)
    if form.rows is not None:
        return _PLAIN, form.rows(source.paths)
    if form is FULL_TEXT:
        return _PLAIN, full_text_rows(source.paths)
    if form in (PARQUET, ARROW):
        columns = columns_of(source)
        others = [name for name in (columns.labels, columns.id, columns.group) if name]
        return columns, arrow_rows(source.paths, [*columns.text, *others])
    if form is JSON_LINES:
        _check_choices(path, options)
        return _PLAIN, json_rows(path)
    if is_table(source):
        table = table_of(source, progress)
        return columns_of(source, table.header.names), table.rows()
    return _PLAIN, short_text_rows(source, progress)


def _documents(source: DocumentSource, is_label: IsLabel | None) -> Iterator[RawDocument | BadLine]:
    columns, rows = rows_of(source)
    parse: Callable[[int, Fields], RawDocument]
    parse = partial(_parse_cells, columns, source.options, is_label)
    if source.form is EXTREME_CLASSIFICATION:
        parse = _parse_indexed
    elif source.form is FULL_TEXT:
        parse = _parse_full_text
    elif source.form is JSON_LINES:
        parse = partial(_parse_json, source.options)
    return _parsed(rows, parse)


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


# Files with one row for each pair of a document and a label.


def _ids_differ(rows: Iterable[RawDocument | BadLine]) -> bool:
    """Return whether each row has an id of its own, so that only its text says its document."""
    seen: set[int] = set()
    for row in rows:
        if isinstance(row, RawDocument):
            number = None if row.id is None else hash_of(row.id)
            if number is None or number in seen:
                return False
            seen.add(number)
    return True


def grouped_rows(
    path: Path, rows: Iterable[RawDocument | BadLine], *, by_text: bool = False
) -> Iterator[RawDocument | BadLine]:
    """Yield a document for each run of rows with the same id, or, without ids, the same text.

    In memory are the rows of one document, and a hash of each document before it. A row of a known
    id with another text is a problem.

    Args:
        path: The file's path, for messages.
        rows: With the labels of one pair each.
        by_text: Whether ids don't count; a document has that of its first row.
    """
    seen: set[int] = set()
    whole: RawDocument | None = None
    for row in rows:
        if isinstance(row, BadLine):
            yield row
        elif whole is None or _key(row, by_text) != _key(whole, by_text):
            if whole is not None:
                yield whole
            _check_new(path, row, seen, by_text)
            whole = row
        elif row.text != whole.text:
            yield BadLine(
                row.line,
                f"id {row.id!r} with another text than on line {whole.line}; expected the same on "
                "each row of a document",
            )
        else:
            labels = dict.fromkeys([*map(str, whole.labels), *map(str, row.labels)])
            whole = replace(whole, labels=tuple(labels))
    if whole is not None:
        yield whole


def _key(row: RawDocument, by_text: bool) -> tuple[bool, str]:
    is_text = by_text or row.id is None
    return (is_text, row.text if is_text else row.id or "")


def _check_new(path: Path, row: RawDocument, seen: set[int], by_text: bool) -> None:
    """Note that a document begins."""
    by_text, key = _key(row, by_text)
    number = hash_of(f"{by_text:d}{key}")
    if number in seen:
        what = "this text" if by_text else f"id {key!r}"
        raise DataError(
            f"{path}, line {row.line}: {what} again, after other documents; with "
            "--one-row-per-label all rows of a document must stand together: sort the file by "
            f"{'its text' if by_text else 'its id'}"
        )
    seen.add(number)


# Which columns.


def is_table(source: DocumentSource) -> bool:
    """Return whether documents are rows of a CSV or TSV file with a header."""
    return source.form is CSV or (source.form is TSV and not is_short_text(source))


def table_of(source: DocumentSource, progress: Callable[[int], object] = ignore) -> CsvTable:
    """Return the rows of a CSV or TSV file; where labels are not read, quotes may be left open.

    Args:
        source: Such a file.
        progress: As for `rows_of`.
    """
    options, reads_labels = source.options, source.reads_labels
    labels = LABEL_NAMES if options.label_column is None else (options.label_column,)
    texts: list[tuple[str, ...]] = [(name,) for name in options.text_columns] or [TEXT_NAMES]
    others = [(name,) for name in (options.id_column, options.group_column) if name]
    needed = [*([labels] if reads_labels else []), *texts, *others]
    optional = () if options.id_column else (*ID_NAMES, *([] if reads_labels else [UID]))
    try:
        return CsvTable(source.paths[0], needed, optional, progress, strict=reads_labels)
    except DataError as error:
        named = {
            "--text-columns": options.text_columns,
            "--label-column": options.label_column or not reads_labels,
        }
        missing = " and ".join(option for option, is_named in named.items() if not is_named)
        more = f"; name others with {missing}" if missing and "expected" in str(error) else ""
        raise DataError(f"{error}{more}") from error


def _first_names(path: Path) -> list[str]:
    rows = islice(json_rows(path), _PEEKED)
    return list(dict.fromkeys(x for _, row in rows if not isinstance(row, BadLine) for x in row))


def _check_choices(path: Path, options: CorpusOptions) -> None:
    """Refuse JSON lines whose first lines lack a column that is named, or have several."""
    try:
        find_columns(_first_names(path), options)
    except ColumnChoiceError as error:
        raise DataError(f"{path}, first {_PEEKED} lines: {error}") from error
    except DataError:
        return


@lru_cache(maxsize=256)
def line_columns(
    names: tuple[str, ...], options: CorpusOptions, *, reads_labels: bool = True
) -> ColumnNames:
    """Return the columns of a line of JSON; some named ones may be missing, but not all."""
    text = tuple(name for name in options.text_columns if name in names) or options.text_columns
    found_id = options.id_column if options.id_column in names else None
    lenient = replace(options, text_columns=text, id_column=found_id)
    try:
        return find_columns(names, lenient, reads_labels=reads_labels)
    except ColumnChoiceError:
        raise
    except DataError:
        return _PLAIN


# What a line must hold: these raise DataError with the bare reason.


def _parse_indexed(line: int, fields: Fields) -> RawDocument:
    if "target_ind" not in fields:
        raise DataError(f"no 'target_ind'; {present(fields)}")
    indices = fields["target_ind"]
    if not isinstance(indices, list):
        raise DataError(f"target_ind is {shown(indices)}; expected a list")
    for index in indices:
        if type(index) is not int:  # a bool is an int too
            raise DataError(f"target_ind holds {shown(index)}; expected label indices, as integers")
    text = _text(fields, *_INDEXED.text)
    return RawDocument(line, id_of(fields, "uid") or None, text, tuple(indices))


def _parse_full_text(line: int, fields: Fields) -> RawDocument:
    try:
        return _document(line, fields, _PLAIN, fields[LABELS])
    except DataError as error:
        raise type(error)(f"{fields['id']}: {error}") from error


def _parse_json(options: CorpusOptions, line: int, fields: Fields) -> RawDocument:
    columns = line_columns(tuple(fields), options)
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
    if len(labels) > MAX_LABELS:
        raise DataError(
            f"{columns.labels} holds {len(labels):,} labels; expected at most {MAX_LABELS:,}"
        )
    keys = tuple(label_key(entry, columns.labels) for entry in labels)
    found_id = id_of(fields, columns.id) if columns.id else ""
    group = id_of(fields, columns.group) if columns.group else None
    return RawDocument(line, found_id or None, _text(fields, *columns.text), keys, group)


def _text(fields: Fields, *names: str) -> str:
    if not set(names) & fields.keys():
        raise DataError(f"no {' or '.join(map(repr, names))}; {present(fields)}")
    text = joined_text(*(string_of(fields, name) for name in names))
    if len(text) > MAX_TEXT_CHARACTERS:
        raise DataError(
            f"text of {len(text):,} characters; expected at most {MAX_TEXT_CHARACTERS:,}; divide "
            "the document"
        )
    if not text:
        raise _EmptyTextError(f"empty text; expected words in {' or '.join(map(repr, names))}")
    return text
