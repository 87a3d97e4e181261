"""Answers as a table: the rows of the input, with columns for the labels behind them.

A table of another input than CSV has the number and the id of each document. Behind the columns of
the input stand those of `ADDED`, and `ACCEPTED` where that was asked. Several labels of a cell
stand between semicolons; where a label has a semicolon itself, the cell is a JSON list. Training
reads both.

The table opens in a spreadsheet: it begins with a byte order mark, by which Excel recognises UTF-8,
and a cell that a spreadsheet would run as a formula gets an apostrophe before it. All other cells
of the input, numbers with a sign among them, stay as they are. The page writes the same table.

Unfinished answers of any form are in `OUTPUT.part`, JSON lines in order, and become `OUTPUT` when
all are there. Work that was cut off goes on behind the last whole line; `OUTPUT.part.json` says
what it was about, so that answers of another model or question are never mixed in.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from gzip import GzipFile
from hashlib import sha256
from pathlib import Path
from typing import Any

from longtail.models.corpus.columns import RECOGNISED, CorpusOptions
from longtail.models.corpus.documents import is_table, table_of
from longtail.models.corpus.files import find_unlabelled
from longtail.models.corpus.raw import DocumentSource
from longtail.models.errors import ConfigError, DataError
from longtail.models.files.failures import doing
from longtail.models.files.outputs import held
from longtail.models.files.rows import CsvTable
from longtail.models.files.text_files import BadLine, lines
from longtail.models.labels.cells import DELIMITER
from longtail.service.engine.queries import LabelSets
from longtail.service.wire.lines import Tally

ADDED = ("labels", "label_ids", "probabilities", "remarks")
"""Names and ids of the labels, best first, their probabilities, and the codes of the warnings, or
why there is no answer."""
ACCEPTED = "accepted"
"""Name of the column that says which labels are accepted, where that was asked."""
_LINES = ("", ".jsonl", ".ndjson")
_TABLES = (".csv", ".tsv")
_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d\s.,%]*\Z)")
"""The beginning of a formula; a sign before digits alone is a number."""


def form_of(path: Path) -> str:
    """Return how a file's name ends, in lower case and without .gz: ".csv", ".jsonl", ..."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def check_form(source: DocumentSource, target: Path, *, has_explanations: bool) -> None:
    """Refuse answers in a form that there is not, or that has no room for them."""
    where = f"--output {str(target)!r}"
    if form_of(target) not in _TABLES:
        if form_of(target) not in _LINES:
            raise ConfigError(
                f"{where}: answers are written as JSON lines (.jsonl, .ndjson) or as a table "
                f"(.csv, .tsv), each also with .gz; got {form_of(target)!r}"
            )
        return
    if has_explanations:
        raise ConfigError(f"{where}: a table has no room for --explain; write .jsonl")
    if is_table(source) and not source.paths[0].is_file():
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
    try:
        for cells, line in zip(records, answers, strict=True):
            own = cells[:width] + [""] * (width - len(cells))
            yield [*own, *_cells(json.loads(line), added), *cells[width:]]
    except ValueError as error:
        raise DataError(
            f"{str(table.path)!r} has other rows than were answered: it has changed since; remove "
            "the unfinished answers, and start again"
        ) from error


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


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be answered from where to where.

    Attributes:
        source: A file or folder as `longtail.models.corpus.files.find_unlabelled` takes it.
        target: Where the answers shall lie: JSON lines, or a table where its name ends in .csv or
            .tsv; gzip-compressed where it ends in .gz.
        version: Number of the model version; the only one that lines may name.
        digest: Of that version.
        defaults: What is asked for where a line says nothing.
        label_sets: The sets of labels that lines may name.
        options: Columns of the source that are named.
    """

    source: Path
    target: Path
    version: int
    digest: str
    defaults: dict[str, Any]
    label_sets: LabelSets = field(default_factory=LabelSets)
    options: CorpusOptions = RECOGNISED

    @property
    def documents(self) -> DocumentSource:
        """Where the documents lie."""
        return find_unlabelled(self.source, self.options)

    @property
    def part(self) -> Path:
        """Where the answers lie until all are there."""
        return self.target.with_name(self.target.name + ".part")

    @property
    def state(self) -> Path:
        """What the answers in `part` are about."""
        return self.target.with_name(self.target.name + ".part.json")

    def describe(self) -> dict[str, Any]:
        """Return what must be the same for the work to go on."""
        stats = ((path.name, path.stat()) for path in self.documents.paths)
        files = repr([(name, file.st_size, file.st_mtime_ns) for name, file in stats])
        text, key = self.options.text_columns, self.options.id_column
        return {
            "source": str(self.source.resolve()),
            "files": sha256(files.encode()).hexdigest(),
            "digest": self.digest,
            "defaults": self.defaults,
            "label_sets": self.label_sets.digest(),
            **({"columns": [[*text], key]} if text or key else {}),
        }


@contextmanager
def working(task: Task) -> Iterator[None]:
    """Hold the output, so that two runs never write one file; errors of the disk name it."""
    with doing("writing the answers", task.part):
        task.target.parent.mkdir(parents=True, exist_ok=True)
        lock = task.target.with_name(f".{task.target.name}.lock")
        refusal = (
            f"--output {str(task.target)!r}: another 'longtail predict' writes it; wait for it"
        )
        with held(lock, refusal):
            yield


def finish(task: Task, tally: Tally) -> None:
    """Put the answers, which are all there, where they shall lie: as they are, packed, a table."""
    is_packed = task.target.suffix == ".gz"
    is_table_wanted = form_of(task.target) in _TABLES
    if is_packed or is_table_wanted:
        incoming = task.target.with_name(f".{task.target.name}.incoming")
        with (
            task.part.open("rb") as answers,
            gzip.open(incoming, "wb") if is_packed else incoming.open("wb") as out,
        ):
            if is_table_wanted:
                has_accepted = bool(task.defaults.get("accept"))
                write_table(
                    task.documents, task.target, answers, out, tally, has_accepted=has_accepted
                )
            else:
                shutil.copyfileobj(answers, out)
        incoming.replace(task.target)
        task.part.unlink()
    else:
        task.part.replace(task.target)
    task.state.unlink()


def resume(task: Task, tally: Tally) -> int:
    """Return how many answers an earlier run has left, and count them; begin where there was none.

    Args:
        task: What is to be done.
        tally: Counts the answers.
    """
    expected = check_left(task)
    if not (task.part.exists() and task.state.exists()):
        task.state.write_text(json.dumps(expected), encoding="utf-8", newline="\n")
        task.part.write_bytes(b"")
        return 0
    whole = 0
    with task.part.open("rb+") as part:
        for answer in part:
            if answer.endswith(b"\n"):
                whole += len(answer)
                _count(tally, answer, task.part)
        part.truncate(whole)
    return tally.num_lines


def _count(tally: Tally, answer: bytes, part: Path) -> None:
    try:
        tally.note_answer(answer)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{str(part)!r}, line {tally.num_lines + 1}: is no answer of an earlier run; remove "
            "the file to start again"
        ) from error


def check_left(task: Task) -> dict[str, Any]:
    """Return what the task is about; refuse what an earlier run has left that differs."""
    try:
        expected = task.describe()
    except OSError as error:
        raise DataError(f"input {str(task.source)!r}: {error.strerror}") from error
    if task.state.exists():
        found = _read_state(task.state)
        if differing := differences(found, expected):
            raise ConfigError(
                f"{str(task.part)!r} holds unfinished answers of another run ({differing}); give "
                f"the same command to resume it, or remove {task.part.name!r} and "
                f"{task.state.name!r} to start again"
            )
    elif task.part.exists():
        raise ConfigError(
            f"{str(task.part)!r} is there, and is not unfinished work (it has no "
            f"{task.state.name!r}); move it away, or choose another --output"
        )
    return expected


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        state = None
    if not isinstance(state, dict) or "defaults" not in state:
        raise ConfigError(
            f"{str(path)!r} is not the note of an unfinished run; move it away, or choose another "
            "--output"
        )
    return state


def differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return in words what differs between the notes of two runs; empty where nothing does."""
    reasons = {
        "source": "its --input is another file",
        "files": "its --input has changed since",
        "digest": "its model is another version",
        "label_sets": "a stored label set has changed since",
    }
    words = [words for name, words in reasons.items() if found.get(name) != expected.get(name)]
    before, now = found["defaults"], expected["defaults"]
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            values = (repr(x[name]) if name in x else "not given" for x in (before, now))
            words.append(f"{option_of(name)} was {next(values)} and is now {next(values)}")
    return "; ".join(dict.fromkeys(words))


def option_of(name: str) -> str:
    """Return the option of the command for a field of a line."""
    return "-k" if name == "k" else f"--{name.replace('_', '-')}"
