"""A file of lines in, a file of answers out: what `POST /v1/batch` does, without a service.

Answers are written to `OUTPUT.part`, in order, and moved to `OUTPUT` when all are there. Started
again after it was cut off, the work goes on behind the last whole line; what it was about stands in
`OUTPUT.part.json`, so that answers of another model or question are never mixed in.
"""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from pydantic import ValidationError

from models.encoder import Precision
from models.errors import (
    BundleNotFoundError,
    ConfigError,
    DataError,
    LongtailError,
    RequestError,
)
from models.onnx_encoder import OnnxPrecision
from models.selection import LabelFilter
from service.batching import Options
from service.label_sets import LabelSets
from service.lines import (
    TOO_LONG,
    LineError,
    LineSplitter,
    error_line,
    parse_line,
    problem_of_error,
    result_line,
)
from service.problems import KINDS
from service.schemas import BatchLine, BatchOptions, BatchSummary

if TYPE_CHECKING:  # it brings PyTorch
    from models.predictor import Predictor

MAX_LINE_BYTES = 2**24
ENGINES = ("local", "ray")
CHUNK_LINES = 512
"""Lines that are answered, and written, together."""
_READ_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be answered from where to where.

    Attributes:
        source: Lines as `POST /v1/batch` takes them; gzip where its name ends in .gz.
        target: Where the answers shall lie.
        version: Number of the model version; the only one that lines may name.
        digest: Of that version.
        defaults: What is asked for where a line says nothing.
        label_sets: The sets of labels that lines may name.
    """

    source: Path
    target: Path
    version: int
    digest: str
    defaults: dict[str, Any]
    label_sets: LabelSets = field(default_factory=LabelSets)

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
        }


@dataclass(slots=True)
class Tally:
    """What has become of the lines so far."""

    num_lines: int = 0
    num_errors: int = 0
    num_truncated: int = 0
    versions: Counter[int] = field(default_factory=Counter)

    def note(self, answer: bytes) -> None:
        """Count the answer to a line."""
        content = json.loads(answer)
        self.num_lines += 1
        if "error" in content:
            self.num_errors += 1
        else:
            self.num_truncated += content["truncated"]
            self.versions[content["version"]] += 1

    def summary(self) -> BatchSummary:
        """Return the counts of work that is done."""
        return BatchSummary(
            complete=True,
            num_lines=self.num_lines,
            num_results=self.versions.total(),
            num_errors=self.num_errors,
            num_truncated=self.num_truncated,
            versions=dict(self.versions),
            error=None,
        )


def checked_options(given: Mapping[str, object]) -> dict[str, Any]:
    """Return what to ask for where a line says nothing: what is given and not None.

    Raises:
        ConfigError: It is not as lines may have it.
    """
    wanted = {name: value for name, value in given.items() if value is not None}
    try:
        return BatchOptions.model_validate(wanted).model_dump(exclude_unset=True)
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        name = str(found["loc"][0])
        raise ConfigError(
            f"--{name.replace('_', '-')}: got {found['input']!r}; {found['msg']}"
        ) from error


def checked_precision(name: str) -> Precision | OnnxPrecision:
    """Return a precision by its name.

    Raises:
        ConfigError: There is none of this name.
    """
    known = get_args(Precision) + get_args(OnnxPrecision)
    if name not in known:
        raise ConfigError(f"--precision: got {name!r}; wanted one of {known}")
    return cast(Precision | OnnxPrecision, name)


def checked_engine(name: str) -> str:
    """Return what computes, by its name.

    Raises:
        ConfigError: There is none of this name.
    """
    if name not in ENGINES:
        raise ConfigError(f"--engine: got {name!r}; wanted one of {ENGINES}")
    return name


def predict_file(
    task: Task, predictor: Predictor, progress: Callable[[int], object] = int
) -> BatchSummary:
    """Answer every line of a file; what an earlier run has answered is kept.

    Args:
        task: What to do.
        predictor: The model of the task's version.
        progress: Called with the bytes of the source, as it lies on disk, that were read since.

    Returns:
        What became of all lines, those of earlier runs among them.

    Raises:
        DataError: The source can't be read.
        ConfigError: What an earlier run has left is about something else.
    """
    tally = Tally()
    num_kept = resume(task, tally)
    try:
        with task.part.open("ab") as out:
            for number, lines in enumerate(_chunks(task.source, progress)):
                index = number * CHUNK_LINES
                left = lines[max(0, num_kept - index) :]
                for answer in answers_to(predictor, task, max(index, num_kept), left):
                    tally.note(answer)
                    out.write(answer)
                out.flush()
                os.fsync(out.fileno())
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        raise DataError(f"{str(task.source)!r} can't be read to its end: {error}") from error
    finish(task)
    return tally.summary()


def finish(task: Task) -> None:
    """Move the answers, which are all there, to where they shall lie."""
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
    try:
        wanted = task.describe()
    except OSError as error:
        raise DataError(f"input {str(task.source)!r}: {error.strerror}") from error
    if not (task.part.exists() and task.state.exists()):
        task.target.parent.mkdir(parents=True, exist_ok=True)
        task.state.write_text(json.dumps(wanted), encoding="utf-8")
        task.part.write_bytes(b"")
        return 0
    found = json.loads(task.state.read_text(encoding="utf-8"))
    differing = [name for name in wanted if found.get(name) != wanted[name]]
    if differing:
        raise ConfigError(
            f"{str(task.part)!r} holds answers of a run with another {', '.join(differing)}; "
            "remove it to begin anew, or go on as that run did"
        )
    whole = 0
    with task.part.open("rb+") as part:
        for answer in part:
            if answer.endswith(b"\n"):
                whole += len(answer)
                tally.note(answer)
        part.truncate(whole)
    return tally.num_lines


def _chunks(source: Path, progress: Callable[[int], object]) -> Iterator[list[bytes | None]]:
    """Yield the lines that are not blank, `CHUNK_LINES` at a time; None for one too long."""
    chunk: list[bytes | None] = []
    for line in lines_of(source, progress):
        if line is None or line.strip():
            chunk.append(line)
        if len(chunk) == CHUNK_LINES:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def lines_of(source: Path, progress: Callable[[int], object]) -> Iterator[bytes | None]:
    """Yield all lines of a file, blank ones too; None for one too long."""
    splitter = LineSplitter(MAX_LINE_BYTES)
    with ExitStack() as stack:
        raw = stack.enter_context(source.open("rb"))
        is_packed = source.suffix == ".gz"
        read = stack.enter_context(gzip.open(raw)).read if is_packed else raw.read
        num_read = 0
        while piece := read(_READ_BYTES):
            yield from splitter.feed(piece)
            progress(raw.tell() - num_read)
            num_read = raw.tell()
    yield from splitter.finish()


def answers_to(
    predictor: Predictor, task: Task, first: int, lines: Sequence[bytes | None]
) -> list[bytes]:
    """Return the answers to some lines, those that ask for the same computed together.

    Args:
        predictor: The model of the task's version.
        task: What is to be done.
        first: Number of the first line.
        lines: That are not blank; None for one too long.
    """
    answers: dict[int, bytes] = {}
    groups: dict[Options, list[tuple[int, BatchLine]]] = {}
    for index, content in enumerate(lines, first):
        try:
            line = _parsed(content, task)
            options = _options_of(line, task, predictor.default_scorer)
        except LineError as error:
            answers[index] = error_line(index, error.id, problem_of_error(error))
        else:
            groups.setdefault(options, []).append((index, line))
    for options, group in groups.items():
        answers |= _answer_group(predictor, task, options, group)
    return [answers[index] for index in sorted(answers)]


def _parsed(content: bytes | None, task: Task) -> BatchLine:
    """Return what a line asks for.

    Raises:
        LineError: It can't be read, or asks for another version.
    """
    if content is None:
        raise LineError(TOO_LONG, f"the line has more than {MAX_LINE_BYTES} bytes; shorten it")
    line = parse_line(content, task.defaults)
    if line.version not in {None, "current", task.version}:
        raise LineError(
            KINDS[BundleNotFoundError],
            f"the line asks for version {line.version}, and all lines are answered by version "
            f"{task.version}; run once more for the others",
            known_by=line.id,
        )
    return line


def _options_of(line: BatchLine, task: Task, default_scorer: str) -> Options:
    """Return what a line asks for, as it is computed together with others.

    Raises:
        LineError: It names a set of labels that there is not.
    """
    try:
        include_set, exclude_set = (
            None if name is None else task.label_sets.get(name)
            for name in (line.include_set, line.exclude_set)
        )
    except RequestError as error:
        raise LineError(KINDS[RequestError], str(error), known_by=line.id) from error
    include = None if line.include is None else tuple(line.include)
    wanted = LabelFilter(include, tuple(line.exclude), include_set, exclude_set)
    return Options(
        line.k, line.scorer or default_scorer, line.threshold, line.correction, line.tail_dial,
        label_filter=None if wanted.is_empty else wanted, explain=line.explain,
    )  # fmt: skip


def _answer_group(
    predictor: Predictor, task: Task, options: Options, group: Sequence[tuple[int, BatchLine]]
) -> dict[int, bytes]:
    try:
        predictions = predictor.predict([line.text for _, line in group], **options.as_arguments())
    except LongtailError as error:  # all have asked for the same
        problem = problem_of_error(error)
        return {index: error_line(index, line.id, problem) for index, line in group}
    return {
        index: result_line(index, line, task.version, options.scorer, prediction)
        for (index, line), prediction in zip(group, predictions, strict=True)
    }
