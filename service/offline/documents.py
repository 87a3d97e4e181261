"""Documents as `longtail predict` reads them: in the forms of a corpus, or a text a line.

The forms, and which columns hold the text and the id, are those of training
(`longtail.models.corpus`); labels are not read. JSON lines are also as `POST /v1/batch` takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

from longtail.models.corpus.columns import (
    ID_NAMES,
    LABEL_NAMES,
    TEXT_NAMES,
    UID,
    ColumnNames,
    CorpusOptions,
    as_trained,
)
from longtail.models.corpus.documents import line_columns, names_in, recognised, rows_of
from longtail.models.corpus.forms import DocumentSource
from longtail.models.errors import ConfigError, DataError, ignore
from longtail.models.files.rows import check_encoding
from longtail.models.files.text_files import MAX_LINE_BYTES, BadLine, LongLineError, bounded_lines
from longtail.models.interface.given_texts import joined
from longtail.service.schemas.requests import BatchLine

Document: TypeAlias = bytes | dict[str, Any] | BadLine | None
"""A line of JSON, its text and id, why it can't be read, or None where it is too long."""
_LABEL_FIELDS = frozenset({*LABEL_NAMES, "target_ind", "target_rel"})
_FIELDS = frozenset({*TEXT_NAMES, *ID_NAMES, UID})


def check_source(source: DocumentSource) -> list[str]:
    """Refuse documents that can't be read, before a model is loaded.

    Returns:
        What a person should know of how they are read: sentences.
    """
    path = source.paths[0]
    if not path.is_file():
        return []  # a pipe, which can be read only once
    if source.form.is_text:
        check_encoding(path, bounded_lines(path, MAX_LINE_BYTES))
    with suppress(LongLineError):  # of JSON lines that one alone is refused
        names = names_in(source)
        is_short_text = source.form.is_csv and names is None
        has_labels = is_short_text or not _LABEL_FIELDS.isdisjoint(map(str.lower, names or ()))
        left_out = ["The documents have labels, which are left out."] if has_labels else []
        return left_out + [f"{source.place}: {remark}" for remark in recognised(source)]
    return []


def read_as_trained(source: DocumentSource, trained: Sequence[str]) -> DocumentSource:
    """Return documents whose text is that of the training's columns where they have them all.

    Args:
        source: The documents; columns that are named stay.
        trained: Columns of the texts that the model was trained on; empty where they had none.
    """
    options = source.options
    for text in (options.text_columns, tuple(trained)) if source.paths[0].is_file() else ():
        with suppress(DataError, ConfigError):  # known columns are recognised, others must be named
            names = names_in(replace(source, options=replace(options, text_columns=text))) or ()
            return replace(source, options=as_trained(names, options, trained))
    return source


def documents_of(
    source: DocumentSource,
    max_bytes: int,
    progress: Callable[[int], object] = ignore,
) -> Iterator[Document]:
    """Yield the documents in order; a blank line is none, but in plain text one without a text.

    Args:
        source: Where they are.
        max_bytes: Most bytes of a line, or of a text in a file of its own.
        progress: Called with the bytes of the files, as they are on disk, that were read since.
    """
    if source.form.line is not None:
        for line in bounded_lines(source.paths[0], max_bytes, progress):
            if line is None:
                yield None
            elif document := source.form.line(line.removesuffix(b"\n")):
                yield document
        return
    for path in source.paths:
        yield from _documents_in(replace(source, paths=(path,), progress=progress), max_bytes)


def _documents_in(source: DocumentSource, max_bytes: int) -> Iterator[Document]:
    name, size = source.paths[0].name, source.paths[0].stat().st_size
    if source.form.document_suffix and size > max_bytes:
        yield BadLine(1, f"{name} has {size} bytes, expected at most {max_bytes}; divide it")
    else:
        columns, rows = rows_of(source)
        for _, fields in rows:
            yield fields if isinstance(fields, BadLine) else _question(fields, columns)
    if not source.form.is_text:
        source.progress(size)


def as_question(options: CorpusOptions, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of JSON as `POST /v1/batch` takes it, the text that of its columns.

    Of a line with labels, only what is asked about it counts, as in training: fields that mean
    nothing here are left out, too. Other lines keep theirs, so that a misspelt one is refused.
    """
    columns = line_columns(tuple(content), options, reads_labels=False)
    read = {*_FIELDS, *columns.text, columns.id}
    others = {name: value for name, value in content.items() if name not in read}
    if not _LABEL_FIELDS.isdisjoint(others):
        others = {name: value for name, value in others.items() if name in BatchLine.model_fields}
    return others | _question(content, columns)


def _question(fields: Mapping[str, Any], columns: ColumnNames) -> dict[str, Any]:
    """Return text and id of a document, where it has them."""
    cells = [fields[name] for name in columns.text if name in fields]
    found = {"text": joined(cells) if len(cells) > 1 else cells[0]} if cells else {}
    return found | ({"id": fields[columns.id]} if columns.id and columns.id in fields else {})
