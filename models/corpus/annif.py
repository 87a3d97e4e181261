"""Annif's corpora: short texts, one a line with its subjects; and full texts, one a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from longtail.models.corpus.columns import (
    ID_NAMES,
    LABEL_NAMES,
    LABELS,
    TEXT_NAMES,
    UID,
    CorpusOptions,
)
from longtail.models.corpus.forms import DocumentSource, Format
from longtail.models.corpus.label_cells import BRACKETED, check_cell, labels_of_text
from longtail.models.errors import DataError
from longtail.models.files.rows import Fields, Row, not_utf_8
from longtail.models.files.text_files import MAX_LINE_BYTES, BadLine, lines
from longtail.models.labels.cells import listed_labels

TEXT_SUFFIX = ".txt"
SUBJECT_SUFFIXES = (".tsv", ".key")
"""Suffixes of files with the subjects of a full text; the first existing file is read."""
_SEVERAL_WORDS = re.compile(r"\S\s\S")
_KNOWN_NAMES = frozenset({*TEXT_NAMES, *LABEL_NAMES, *ID_NAMES, UID})


def is_short_text(source: DocumentSource) -> bool:
    """Return whether a TSV file has no header: its first line is a text and its labels.

    Where labels are not read, and a header need not name them, a first line without a known name is
    a text if it has several words, or labels in angle brackets.
    """
    path, options = source.paths[0], source.options
    if options.names_columns or options.one_row_per_label or not path.is_file():
        return False  # what is read of a pipe is lost
    first = next((line for _, line in islice(lines(path), 1)), b"").decode(errors="replace")
    cells = {cell.strip().strip('"').lower() for cell in first.split("\t")}
    if not source.reads_labels:
        text, _, labels = first.rpartition("\t")
        is_text = _SEVERAL_WORDS.search(text) or (text and BRACKETED.match(labels.lstrip()))
        return bool(is_text) and cells.isdisjoint(_KNOWN_NAMES)
    has_header = not cells.isdisjoint(LABEL_NAMES) and not cells.isdisjoint(TEXT_NAMES)
    return "\t" in first and not has_header


def short_text_rows(source: DocumentSource) -> Iterator[Row]:
    """Yield text and labels of each line, and a problem for each that is no text, tab, labels.

    Where labels are not read, a line may lack them.
    """
    for number, line in lines(source.paths[0], source.progress):
        if not line.strip():
            continue
        try:
            content = line.decode().rstrip("\r\n")
            row: Fields | BadLine = {"text": content.partition("\t")[0]}
            if source.reads_labels:
                row = _short_text(content, source.options)
        except UnicodeDecodeError as error:
            row = BadLine(number, not_utf_8(line[error.start], error.start))
        except DataError as error:
            row = BadLine(number, str(error))
        yield number, row


def _short_text(line: str, options: CorpusOptions) -> Fields:
    text, tab, cell = line.partition("\t")
    if not tab:
        raise DataError("no tab; expected a text, a tab, and its labels")
    check_cell(cell, LABELS)
    is_plain = (
        options.label_delimiter is None
        and not BRACKETED.search(cell)
        and listed_labels(cell) is None
    )
    return {
        "text": text,
        LABELS: cell.split() if is_plain else labels_of_text(cell, LABELS, options),
    }


def _full_text_rows(paths: Sequence[Path]) -> Iterator[Row]:
    """Yield id, text and labels of each document, numbered from 1 in the order of their names.

    Args:
        paths: All files of a split; those that are no texts are read with their text.
    """
    others = {path for path in paths if path.suffix != TEXT_SUFFIX}
    texts = sorted(path for path in paths if path.suffix == TEXT_SUFFIX)
    for number, path in enumerate(texts, 1):
        subjects = [path.with_suffix(suffix) for suffix in SUBJECT_SUFFIXES]
        found = next((each for each in subjects if each in others), None)
        try:
            row: Fields | BadLine = {
                "id": path.stem,
                "text": _content(path),
                LABELS: [] if found is None else _subjects(found),
            }
        except UnicodeDecodeError as error:
            byte = not_utf_8(error.object[error.start], error.start)
            row = BadLine(number, f"{path.stem}: {byte}")
        except DataError as error:
            row = BadLine(number, f"{path.stem}: {error}")
        yield number, row


def _content(path: Path) -> str:
    if (size := path.stat().st_size) > MAX_LINE_BYTES:
        raise DataError(f"{path.name} has {size:,} bytes; expected at most {MAX_LINE_BYTES:,}")
    return b"".join(line for _, line in lines(path)).decode()


def _subjects(path: Path) -> list[str]:
    """Return the labels of a document: of each line the URI, or else the name."""
    rows = (line.split("\t") for line in _content(path).splitlines() if line.strip())
    if path.suffix == SUBJECT_SUFFIXES[1]:
        return ["\t".join(cells) for cells in rows]
    return [next((cell for cell in cells[:2] if cell.strip(" <>")), "") for cells in rows]


def _full_texts(folder: Path) -> list[Path]:
    """Return the texts of a folder and their subjects; none where no text has any."""
    suffixes = {TEXT_SUFFIX, *SUBJECT_SUFFIXES}
    paths = (
        [path for path in folder.glob("*.*") if path.suffix in suffixes] if folder.is_dir() else []
    )
    stems = {path.stem for path in paths if path.suffix == TEXT_SUFFIX}
    kept = sorted(path for path in paths if path.stem in stems)
    return kept if any(path.suffix != TEXT_SUFFIX for path in kept) else []


FULL_TEXT = Format(
    "Annif full texts", folder_files=_full_texts, document_suffix=TEXT_SUFFIX, is_text=False,
    rows=_full_text_rows,
)  # fmt: skip
