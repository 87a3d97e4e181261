"""Answers as a table: the rows of the input, with columns for the labels behind them.

A table of another input than CSV has the number and the id of each document. Behind the columns of
the input stand those of `ADDED`, and `ACCEPTED` where that was asked. Several labels of a cell
stand between semicolons; where a label has a semicolon itself, the cell is a JSON list. Training
reads both.

The table opens in a spreadsheet: it begins with a byte order mark, by which Excel recognises UTF-8,
and a cell that a spreadsheet would run as a formula gets an apostrophe before it. All other cells
of the input, numbers with a sign among them, stay as they are. The page writes the same table.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from gzip import GzipFile
from itertools import zip_longest
from pathlib import Path
from typing import Any

from longtail.models.corpus.documents import names_in
from longtail.models.corpus.forms import DocumentSource
from longtail.models.corpus.line_forms import table_of
from longtail.models.errors import ConfigError, DataError
from longtail.models.files.rows import CsvTable
from longtail.models.files.text_files import BadLine, lines
from longtail.models.labels.cells import DELIMITER
from longtail.service.wire.lines import Tally

ADDED = ("labels", "label_ids", "probabilities", "remarks")
"""Names and ids of the labels, best first, their probabilities, and the codes of the warnings, or
why there is no answer."""
ACCEPTED = "accepted"
"""Name of the column that says which labels are accepted, where that was asked."""
_LINES = ("", ".jsonl", ".ndjson")
TABLES = (".csv", ".tsv")
_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d\s.,%]*\Z)")
"""The beginning of a formula; a sign before digits alone is a number."""


def form_of(path: Path) -> str:
    """Return how a file's name ends, in lower case and without .gz: ".csv", ".jsonl", ..."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def check_form(source: DocumentSource, target: Path, *, has_explanations: bool) -> None:
    """Refuse an unknown form of answers, or one that can't hold them."""
    where = f"--output {str(target)!r}"
    if form_of(target) not in TABLES:
        if form_of(target) not in _LINES:
            raise ConfigError(
                f"{where}: answers are written as JSON lines (.jsonl, .ndjson) or as a table "
                f"(.csv, .tsv), each also with .gz; got {form_of(target)!r}"
            )
        return
    if has_explanations:
        raise ConfigError(f"{where}: a table has no room for --explain; write .jsonl")
    if source.form.is_csv and not source.paths[0].is_file():
        raise ConfigError(f"{where}: a pipe can't be read again for its rows; write .jsonl")


def write_table(
    source: DocumentSource,
    target: Path,
    answers: Iterable[bytes],
    out: GzipFile | io.BufferedWriter,
    tally: Tally,
    *,
    has_accepted: bool = False,
) -> None:
    """Write the answers to all documents of a file as a table.

    Args:
        source: The documents.
        target: Its name tells the delimiter; a CSV file has that of its source.
        answers: A JSON line for each document, in order.
        out: Takes the table, in UTF-8 with a byte order mark.
        tally: Counts the cells that get an apostrophe.
        has_accepted: Whether a column says which labels are accepted, "yes" or "no" for each.
    """
    added = (*ADDED, ACCEPTED) if has_accepted else ADDED
    out.write(codecs.BOM_UTF8)
    if not source.form.is_csv or names_in(source) is None:
        delimiter = "\t" if form_of(target) == ".tsv" else ","
        found = (json.loads(line) for line in answers)
        rows = (
            [x["index"], *_guarded([_or_empty(x["id"]), *_cells(x, added)], tally)] for x in found
        )
        with _writing(out, delimiter, "\n") as writer:
            writer.writerow(["index", "id", *added])
            writer.writerows(rows)
        return
    table = table_of(source)
    is_windows = next(lines(source.paths[0]))[1].endswith(b"\r\n")
    delimiter = "\t" if form_of(target) == ".tsv" else table.header.delimiter
    with _writing(out, delimiter, "\r\n" if is_windows else "\n") as writer:
        names = [*table.written, *_names_beside(table.written, added)]
        writer.writerow(_guarded(names, tally))
        writer.writerows(_guarded(row, tally) for row in _beside(table, answers, added))


@contextmanager
def _writing(out: GzipFile | io.BufferedWriter, delimiter: str, line_end: str) -> Iterator[Any]:
    # What is not UTF-8 in a row is written as it was read.
    text = io.TextIOWrapper(out, "utf-8", errors="surrogateescape", newline="")
    yield csv.writer(text, delimiter=delimiter, lineterminator=line_end)
    text.flush()
    text.detach()


def _beside(table: CsvTable, answers: Iterable[bytes], added: Sequence[str]) -> Iterator[list[str]]:
    """Yield each row with its answer; cells that the header has no name for come last."""
    width = len(table.written)
    records = (cells for _, cells in table.records() if cells and not isinstance(cells, BadLine))
    for cells, line in zip_longest(records, answers):
        if cells is None or line is None:
            raise DataError(f"{str(table.path)!r}: has changed while it was read; start again")
        own = cells[:width] + [""] * (width - len(cells))
        yield [*own, *_cells(json.loads(line), added), *cells[width:]]


def _names_beside(taken: Sequence[str], added: Sequence[str]) -> list[str]:
    """Return the names of the added columns; such as no other column has."""
    others = {name.strip().lower() for name in taken}
    names = list(added)
    while others & set(names):
        names = [f"predicted_{name}" for name in names]
    return names


def _cells(answer: dict[str, Any], added: Sequence[str] = ADDED) -> list[str]:
    if "error" in answer:
        found = ["", "", "", answer["error"]["detail"] or answer["error"]["title"], ""]
        return found[: len(added)]
    labels = answer["labels"]
    numbers = [x["probability"] for x in labels if x["probability"] is not None]
    remarks = [warning["code"] for warning in answer.get("warnings", ())]
    remarks += ["truncated"] if answer["truncated"] else []
    remarks += [f"abstained: {answer['abstained_because']}"] if answer.get("abstained") else []
    cells = [
        _joined([label["name"] for label in labels]),
        _joined([label["id"] for label in labels]),
        _joined([f"{number:.4f}" for number in numbers]),
        _joined(remarks),
        _joined(["yes" if label.get("accepted") else "no" for label in labels]),
    ]
    return cells[: len(added)]


def _joined(parts: Sequence[str]) -> str:
    if any(DELIMITER in part for part in parts):
        return json.dumps(parts, ensure_ascii=False)
    return f"{DELIMITER} ".join(parts)


def _guarded(cells: Sequence[str], tally: Tally) -> list[str]:
    """Return cells that no spreadsheet runs; changed cells are counted."""
    found = [_harmless(cell) for cell in cells]
    tally.num_guarded += sum(map(str.__ne__, cells, found))
    return found


def _harmless(cell: str) -> str:
    return f"'{cell}" if _FORMULA.match(cell) else cell


def _or_empty(value: object) -> str:
    return "" if value is None else f"{value}"
