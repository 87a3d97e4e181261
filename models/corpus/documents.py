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

from longtail.models.corpus.columns import (
    LABELS,
    SINGLE_LABEL,
    TEXT_NAMES,
    ColumnChoiceError,
    ColumnNames,
    CorpusOptions,
    find_columns,
)
from longtail.models.corpus.forms import DocumentSource
from longtail.models.corpus.label_cells import (
    MAX_LABELS,
    label_key,
    labels_of_text,
    labels_of_value,
)
from longtail.models.corpus.line_forms import PEEKED
from longtail.models.corpus.raw import EmptyText, RawDocument, hash_of, part_of_document
from longtail.models.errors import DataError
from longtail.models.files.rows import Fields, Row, id_of, present, shown, string_of
from longtail.models.files.text_files import BadLine, encoding_of
from longtail.models.labels.cells import IsLabel, python_list
from longtail.models.parts.texts import joined_text

MAX_TEXT_CHARACTERS = 10_000_000
"""Longest document: ten thick books."""
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
    if source.form.is_indexed:
        return _INDEXED
    names = names_in(source) if names is None else names
    if names is None:
        return _PLAIN
    options, reads_labels = source.options, source.reads_labels
    try:
        if source.form.has_own_fields:
            return line_columns(tuple(names), options, reads_labels=reads_labels)
        return find_columns(names, options, reads_labels=reads_labels)
    except DataError as error:
        raise DataError(f"{source.paths[0]}: {error}") from error


def names_in(source: DocumentSource) -> Sequence[str] | None:
    """Return the names of all columns, or fields, of documents; None where none can be chosen."""
    return source.form.table(source).names if source.form.table else None


def recognised(source: DocumentSource) -> list[str]:
    """Describe the recognised columns of a split's files for the log."""
    path, form, options = source.paths[0], source.form, source.options
    encoding = encoding_of(path) if form.is_text or form.document_suffix else None
    found = [] if encoding is None else [f"its text is read as {encoding.upper()}"]
    if form.table is None:
        return found
    table = form.table(replace(source, paths=(path,)))
    found += table.remarks
    if table.names is None:
        return found
    names, columns = table.names, columns_of(source, table.names)
    rows: list[Fields] = []
    if source.reads_labels:
        with suppress(DataError):  # the whole pass says what is wrong
            peeked = islice(table.rows(names), PEEKED)
            rows = [row for _, row in peeked if isinstance(row, dict)]
    unread = [name for name in names if name and name not in columns.read]
    if not source.reads_labels:
        unread = [name for name in unread if name in TEXT_NAMES and not options.text_columns]
    found += columns.remarks(options, {name: [row.get(name) for row in rows] for name in unread})
    cells = [row.get(columns.labels) for row in rows if form.is_text]
    if any(isinstance(cell, str) and python_list(cell.strip()) for cell in cells):
        found.append(
            f"cells of {columns.labels!r} are read as lists, as Python and pandas write them: "
            "['a', 'b']"
        )
    return found


def rows_of(source: DocumentSource) -> tuple[ColumnNames, Iterator[Row]]:
    """Return the columns of documents, and their rows; a line of JSON has columns of its own.

    Of a table, the only file is opened once.
    """
    form = source.form
    if form.rows is not None:
        return _INDEXED if form.is_indexed else _PLAIN, form.rows(source.paths)
    assert form.table is not None
    table = form.table(source)
    if table.names is None:
        return _PLAIN, table.rows(())
    if form.has_own_fields:
        _check_choices(source.paths[0], table.names, source.options)
        return _PLAIN, table.rows(())
    columns = columns_of(source, table.names)
    others = [name for name in (columns.labels, columns.id, columns.group) if name]
    return columns, table.rows([*columns.text, *others])


def _documents(source: DocumentSource, is_label: IsLabel | None) -> Iterator[RawDocument | BadLine]:
    columns, rows = rows_of(source)
    parse: Callable[[int, Fields], RawDocument]
    if source.form.is_indexed:
        parse = _parse_indexed
    elif source.form.has_own_fields:
        parse = partial(_parse_own, source.options)
    else:
        parse = partial(_parse_cells, columns, source.options, is_label)
    for line, fields in rows:
        if isinstance(fields, BadLine):
            yield fields
            continue
        try:
            yield parse(line, fields)
        except DataError as error:
            which = f"{fields['id']}: " if source.form.document_suffix else ""
            kind = EmptyText if isinstance(error, _EmptyTextError) else BadLine
            yield kind(line, f"{which}{error}")


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


def _check_choices(path: Path, names: Sequence[str], options: CorpusOptions) -> None:
    """Refuse JSON lines whose first lines lack a column that is named, or have several."""
    try:
        find_columns(names, options)
    except ColumnChoiceError as error:
        raise DataError(f"{path}, first {PEEKED} lines: {error}") from error
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


def _parse_own(options: CorpusOptions, line: int, fields: Fields) -> RawDocument:
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
