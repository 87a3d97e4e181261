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
from pathlib import Path
from typing import Any

from longtail.models.errors import ConfigError, DataError
from longtail.models.files.text_files import lines
from longtail.models.labels.cells import DELIMITER
from longtail.service.offline.documents import DocumentColumns, DocumentTable, form_of, is_table
from longtail.service.wire.tally import Tally

ADDED = ("labels", "label_ids", "probabilities", "remarks")
"""Names and ids of the labels, best first, their probabilities, and the codes of the warnings, or
why there is no answer."""
ACCEPTED = "accepted"
"""Name of the column that says which labels are accepted, where that was asked."""
_LINES = ("", ".jsonl", ".ndjson")
_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d\s.,%]*\Z)")
"""The beginning of a formula; a sign before digits alone is a number."""


def check_form(source: Path, target: Path, *, has_explanations: bool) -> None:
    """Refuse answers in a form that there is not, or that has no room for them.

    Args:
        source: The documents.
        target: Where the answers shall lie.
        has_explanations: Whether labels are explained.

    Raises:
        ConfigError: They are in such a form; or are to be put beside documents of a pipe, which
            can be read only once.
    """
    where = f"--output {str(target)!r}"
    if not is_table(target):
        if form_of(target) not in _LINES:
            raise ConfigError(
                f"{where}: answers are written as JSON lines (.jsonl, .ndjson) or as a table "
                f"(.csv, .tsv), each also with .gz; got {form_of(target)!r}"
            )
        return
    if has_explanations:
        raise ConfigError(f"{where}: a table has no room for --explain; write .jsonl")
    if is_table(source) and not source.is_file():
        raise ConfigError(f"{where}: a pipe can't be read again for its rows; write .jsonl")


def write_table(
    source: Path,
    target: Path,
    columns: DocumentColumns,
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
        columns: Columns of the source that are named.
        answers: A JSON line for each document, in order.
        out: Takes the table, in UTF-8 with a byte order mark.
        tally: Counts the cells that get an apostrophe.
        has_accepted: Whether a column says which labels are accepted, "yes" or "no" for each.

    Raises:
        DataError: The source has other documents than were answered, or can't be read.
    """
    added = (*ADDED, ACCEPTED) if has_accepted else ADDED
    out.write(codecs.BOM_UTF8)
    if not is_table(source):
        delimiter = "\t" if form_of(target) == ".tsv" else ","
        found = (json.loads(line) for line in answers)
        rows = (
            [x["index"], *_guarded([_or_empty(x["id"]), *_cells(x, added)], tally)] for x in found
        )
        with _writing(out, delimiter, "\n") as writer:
            writer.writerow(["index", "id", *added])
            writer.writerows(rows)
        return
    table = DocumentTable(source, int, columns)
    is_windows = next(lines(source))[1].endswith(b"\r\n")
    delimiter = "\t" if form_of(target) == ".tsv" else table.header.delimiter
    with _writing(out, delimiter, "\r\n" if is_windows else "\n") as writer:
        names = [*table.written, *_names_beside(table.written, added)]
        writer.writerow(_guarded(names, tally))
        writer.writerows(_guarded(row, tally) for row in _beside(source, table, answers, added))


@contextmanager
def _writing(out: GzipFile | io.BufferedWriter, delimiter: str, line_end: str) -> Iterator[Any]:
    # What is not UTF-8 in a row is written as it was read.
    text = io.TextIOWrapper(out, "utf-8", errors="surrogateescape", newline="")
    yield csv.writer(text, delimiter=delimiter, lineterminator=line_end)
    text.flush()
    text.detach()


def _beside(
    source: Path, table: DocumentTable, answers: Iterable[bytes], added: Sequence[str]
) -> Iterator[list[str]]:
    """Yield each row with its answer; cells that the header has no name for come last."""
    width = len(table.written)
    try:
        for cells, line in zip(table.rows(), answers, strict=True):
            own = cells[:width] + [""] * (width - len(cells))
            yield [*own, *_cells(json.loads(line), added), *cells[width:]]
    except ValueError as error:
        raise DataError(
            f"{str(source)!r} has other rows than were answered: it has changed since; remove the "
            "unfinished answers, and start again"
        ) from error


def _names_beside(taken: Sequence[str], added: Sequence[str]) -> list[str]:
    """Return the names of the added columns; such as no other column has."""
    others = {name.strip().lower() for name in taken}
    names = list(added)
    while others & set(names):
        names = [f"predicted_{name}" for name in names]
    return names


def _cells(answer: dict[str, Any], added: Sequence[str] = ADDED) -> list[str]:
    """Return the cells of the added columns for an answer."""
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
    """Return cells that no spreadsheet runs; those that are changed are counted."""
    found = [_harmless(cell) for cell in cells]
    tally.num_guarded += sum(map(str.__ne__, cells, found))
    return found


def _harmless(cell: str) -> str:
    return f"'{cell}" if _FORMULA.match(cell) else cell


def _or_empty(value: object) -> str:
    return "" if value is None else f"{value}"
