"""A file of lines in, a file of answers out: what `POST /v1/batch` does, without a service.

Answers are written to `OUTPUT.part`, in order, and moved to `OUTPUT` when all are there. Started
again after it was cut off, the work goes on behind the last whole line; what it was about stands in
`OUTPUT.part.json`, so that answers of another model or question are never mixed in.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from models.failures import doing
from models.manifest import TEXT
from models.onnx_encoder import OnnxPrecision
from models.outputs import check_output_file, held
from models.selection import LabelFilter
from service.batching import Options
from service.documents import BYTE_ORDER_MARK, as_question, document_lines
from service.label_sets import LabelSets
from service.lines import (
    TOO_LONG,
    LineError,
    error_line,
    parse_line,
    problem_of_error,
    result_line,
)
from service.problems import KINDS
from service.schemas import BatchLine, BatchOptions

if TYPE_CHECKING:  # the second brings PyTorch
    from models.bundle import Bundle
    from models.predictor import Predictor

MAX_LINE_BYTES = 2**24
ENGINES = ("local", "ray")
CHUNK_LINES = 512
"""Lines that are answered, and written, together."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be answered from where to where.

    Attributes:
        source: Documents in a form of `service.documents`.
        target: Where the answers shall lie; gzip-compressed where its name ends in .gz.
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
    first_error: str = ""
    """Why the first line that has no answer has none, and which line it is."""

    def note(self, answer: bytes) -> None:
        """Count the answer to a line."""
        content = json.loads(answer)
        self.num_lines += 1
        if "error" in content:
            self.num_errors += 1
            self.first_error = self.first_error or (
                f"document {content['index'] + 1}: {content['error']['detail']}"
            )
        else:
            self.num_truncated += content["truncated"]
            self.versions[content["version"]] += 1

    @property
    def num_results(self) -> int:
        """How many lines were answered."""
        return self.versions.total()


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
        raise ConfigError(f"{option_of(name)}: got {found['input']!r}; {found['msg']}") from error


def check_options(bundle: Bundle, options: Mapping[str, Any], sets: LabelSets) -> None:
    """Refuse options that no line of this model can be answered with, before it is loaded.

    Args:
        bundle: The model.
        options: What `checked_options` returned.
        sets: The stored sets of labels.

    Raises:
        ConfigError: An option asks for what the model doesn't have.
        RequestError: There is no such stored set.
    """
    manifest = bundle.manifest
    if manifest.input != TEXT:
        raise ConfigError(
            "predict: the model reads features, not texts; choose a version that was trained on "
            "texts, with --version"
        )
    scorer = options.get("scorer", manifest.default_scorer)
    if scorer not in manifest.scorers:
        known = ", ".join(manifest.scorers)
        raise ConfigError(f"--scorer: got {scorer!r}, expected one of the model's: {known}")
    if options.get("k", 1) > manifest.label_count:
        raise ConfigError(
            f"-k: got {options['k']}, expected 1 to {manifest.label_count}, the number of labels"
        )
    for name in ("include_set", "exclude_set"):
        if name in options:
            sets.get(options[name])
    for name in ("include", "exclude"):
        unknown = [x for x in options.get(name, ()) if bundle.catalogue.row_of_id(x) is None]
        if unknown:
            raise ConfigError(
                f"{option_of(name)}: got {unknown[0]!r}, expected the id of a label of the model; "
                "'longtail describe NAME' tells ids"
            )


def check_answerable(predictor: Predictor, task: Task) -> None:
    """Refuse options that contradict each other or the model, by answering a text of one word.

    Raises:
        ConfigError: No line can be answered with them.
    """
    line = BatchLine(text="text", **task.defaults)
    try:
        options = _options_of(line, task, predictor.default_scorer)
        predictor.predict([line.text], **options.as_arguments())
    except (RequestError, LineError) as error:
        raise ConfigError(f"predict: {error}") from error


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


def check_task(task: Task, registry: Path | None = None, *, overwrite: bool = False) -> None:
    """Refuse work whose input or output would stop it, before a model is loaded for it.

    Args:
        task: What is to be done.
        registry: Folder of the registry.
        overwrite: Whether answers that are there already may be replaced.

    Raises:
        ConfigError: The output is an input, is there already or can't be written; or what an
            earlier run has left is about something else.
    """
    inputs = [task.source, *task.label_sets.files()]
    check_output_file(task.target, inputs=inputs, registry=registry, overwrite=overwrite)
    for path in (task.part, task.state):
        check_output_file(path, inputs=inputs, registry=registry, overwrite=True)
    _check_left(task)


def predict_file(
    task: Task, predictor: Predictor, progress: Callable[[int], object] = int
) -> Tally:
    """Answer every line of a file; what an earlier run has answered is kept.

    Args:
        task: What to do.
        predictor: The model of the task's version.
        progress: Called with the bytes of the source, as it lies on disk, that were read since.

    Returns:
        What became of all lines, those of earlier runs among them.

    Raises:
        DataError: The source can't be read.
        ConfigError: What an earlier run has left is about something else, or another process
            works on it.
    """
    tally = Tally()
    with working(task):
        num_kept = resume(task, tally)
        with task.part.open("ab") as out:
            for number, lines in enumerate(_chunks(task.source, progress)):
                index = number * CHUNK_LINES
                left = lines[max(0, num_kept - index) :]
                for answer in answers_to(predictor, task, max(index, num_kept), left):
                    tally.note(answer)
                    out.write(answer)
                out.flush()
                os.fsync(out.fileno())
        finish(task)
    return tally


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


def finish(task: Task) -> None:
    """Move the answers, which are all there, to where they shall lie."""
    if task.target.suffix == ".gz":
        packed = task.target.with_name(f".{task.target.name}.incoming")
        with task.part.open("rb") as answers, gzip.open(packed, "wb") as out:
            shutil.copyfileobj(answers, out)
        packed.replace(task.target)
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
    wanted = _check_left(task)
    if not (task.part.exists() and task.state.exists()):
        task.state.write_text(json.dumps(wanted), encoding="utf-8")
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
        tally.note(answer)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{str(part)!r}, line {tally.num_lines + 1}: is no answer of an earlier run; remove "
            "the file to begin anew"
        ) from error


def _check_left(task: Task) -> dict[str, Any]:
    """Return what the task is about; refuse what an earlier run has left that differs.

    Raises:
        DataError: There is no such source.
        ConfigError: What is left is about something else, or is no such work.
    """
    try:
        wanted = task.describe()
    except OSError as error:
        raise DataError(f"input {str(task.source)!r}: {error.strerror}") from error
    if task.state.exists():
        found = _read_state(task.state)
        if differing := _differences(found, wanted):
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
    return wanted


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


def _differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Return in words what differs between two runs; empty where nothing does."""
    told = {
        "source": "its --input is another file",
        "size": "its --input has changed since",
        "modified_ns": "its --input has changed since",
        "digest": "its model is another version",
        "label_sets": "a stored label set has changed since",
    }
    words = [words for name, words in told.items() if found.get(name) != wanted[name]]
    before, now = found["defaults"], wanted["defaults"]
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            values = (repr(x[name]) if name in x else "not given" for x in (before, now))
            words.append(f"{option_of(name)} was {next(values)} and is now {next(values)}")
    return "; ".join(dict.fromkeys(words))


def option_of(name: str) -> str:
    """Return the option of the command for a field of a line."""
    return "-k" if name == "k" else f"--{name.replace('_', '-')}"


def _chunks(source: Path, progress: Callable[[int], object]) -> Iterator[list[bytes | None]]:
    """Yield the lines that are not blank, `CHUNK_LINES` at a time; None for one too long."""
    chunk: list[bytes | None] = []
    for line in document_lines(source, progress, MAX_LINE_BYTES):
        if line is None or line.strip():
            chunk.append(line)
        if len(chunk) == CHUNK_LINES:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


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
    line = parse_line(content.removeprefix(BYTE_ORDER_MARK), task.defaults, as_question)
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
