"""Work of `longtail predict` that is not finished: noted, held, resumed, and moved into place.

Answers are written to `OUTPUT.part`, JSON lines in order, and become `OUTPUT` when all are there.
Started again after it was cut off, the work goes on behind the last whole line; what it was about
stands in `OUTPUT.part.json`, so that answers of another model or question are never mixed in.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longtail.models.errors import ConfigError, DataError
from longtail.models.files.failures import doing
from longtail.models.files.outputs import held
from longtail.service.engine.label_sets import LabelSets
from longtail.service.offline.documents import DocumentColumns, is_table
from longtail.service.offline.tables import write_table
from longtail.service.wire.tally import Tally


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be answered from where to where.

    Attributes:
        source: Documents in a form of `longtail.service.offline.documents`.
        target: Where the answers shall lie: JSON lines, or a table where its name ends in .csv or
            .tsv; gzip-compressed where it ends in .gz.
        version: Number of the model version; the only one that lines may name.
        digest: Of that version.
        defaults: What is asked for where a line says nothing.
        label_sets: The sets of labels that lines may name.
        columns: Columns of the source that are named.
    """

    source: Path
    target: Path
    version: int
    digest: str
    defaults: dict[str, Any]
    label_sets: LabelSets = field(default_factory=LabelSets)
    columns: DocumentColumns = field(default_factory=DocumentColumns)

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
        found = self.source.stat()
        return {
            "source": str(self.source.resolve()),
            "size": found.st_size,
            "modified_ns": found.st_mtime_ns,
            "digest": self.digest,
            "defaults": self.defaults,
            "label_sets": self.label_sets.digest(),
            **({"columns": [[*self.columns.text], self.columns.id]} if self.columns else {}),
        }


@contextmanager
def working(task: Task) -> Iterator[None]:
    """Hold the output, so that two runs never write one file; errors of the disk name it.

    Raises:
        ConfigError: Another process holds it.
    """
    with doing("writing the answers", task.part):
        task.target.parent.mkdir(parents=True, exist_ok=True)
        lock = task.target.with_name(f".{task.target.name}.lock")
        refusal = (
            f"--output {str(task.target)!r}: another 'longtail predict' writes it; wait for it"
        )
        with held(lock, refusal):
            yield


def finish(task: Task, tally: Tally) -> None:
    """Put the answers, which are all there, where they shall lie: as they are, packed, a table.

    Raises:
        DataError: The source, whose rows a table has, has changed.
    """
    is_packed = task.target.suffix == ".gz"
    if is_packed or is_table(task.target):
        incoming = task.target.with_name(f".{task.target.name}.incoming")
        with (
            task.part.open("rb") as answers,
            gzip.open(incoming, "wb") if is_packed else incoming.open("wb") as out,
        ):
            if is_table(task.target):
                has_accepted = bool(task.defaults.get("accept"))
                write_table(
                    task.source, task.target, task.columns, answers, out, tally,
                    has_accepted=has_accepted,
                )  # fmt: skip
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

    Raises:
        DataError: There is no such source.
        ConfigError: They are about something else.
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
            "the file to begin anew"
        ) from error


def check_left(task: Task) -> dict[str, Any]:
    """Return what the task is about; refuse what an earlier run has left that differs.

    Raises:
        DataError: There is no such source.
        ConfigError: What is left is about something else, or is no such work.
    """
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
                f"{task.state.name!r} to begin anew"
            )
    elif task.part.exists():
        raise ConfigError(
            f"{str(task.part)!r} is there, and is not unfinished work (it has no "
            f"{task.state.name!r}); move it away, or choose another --output"
        )
    return expected


def _read_state(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or "defaults" not in found:
        raise ConfigError(
            f"{str(path)!r} is not the note of an unfinished run; move it away, or choose another "
            "--output"
        )
    return found


def differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return in words what differs between the notes of two runs; empty where nothing does."""
    reasons = {
        "source": "its --input is another file",
        "size": "its --input has changed since",
        "modified_ns": "its --input has changed since",
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
