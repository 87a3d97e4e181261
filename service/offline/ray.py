"""A file of lines in, a file of answers out, on a cluster: Ray Data with an actor pool of models.

The lines are cut into the same chunks as `longtail.service.offline.predict` cuts them, so that an
answer is the same number, to the bit. A chunk is a row of Ray Data; its answers come back in order,
and are written by this process as `longtail.service.offline.predict` writes them. So each line has
one answer whatever workers die, and either way of computing goes on where the other was cut off.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from longtail.models.errors import DataError
from longtail.models.files.failures import reason_of
from longtail.models.names import OnnxPrecision, Precision
from longtail.models.predict.protocol import Predictor
from longtail.models.ray_runtime import start_ray
from longtail.service.engine.label_sets import LabelSets
from longtail.service.offline.documents import document_lines, is_plain_json_lines
from longtail.service.offline.predict import CHUNK_LINES, MAX_LINE_BYTES, answers_to
from longtail.service.offline.unfinished import Task, finish, resume, working
from longtail.service.wire.lines import LineSplitter
from longtail.service.wire.tally import Tally

_READ_BYTES = 2**20
_UNPACKED = ".unpacked-lines"
_ASKED_BY = "--engine ray"


@dataclass(frozen=True, slots=True)
class Workers:
    """Who computes.

    Attributes:
        registry: Folder of the registry, where every machine finds it.
        label_sets: That of the stored sets; None: there are none.
        num_workers: Processes with a model each.
        num_threads: Of each; their number decides the last bits of a score.
        device: "cpu", or "cuda" for a GPU a worker.
        precision: What the encoder computes in.
    """

    registry: Path
    label_sets: Path | None
    num_workers: int
    num_threads: int = 1
    device: str = "cpu"
    precision: Precision | OnnxPrecision = "auto"


class Answerer:
    """A worker: a loaded model that answers the lines of chunks."""

    def __init__(self, task: Task, workers: Workers, ends: Int64[np.ndarray, chunk]) -> None:
        """Load the model.

        Args:
            task: What to do.
            workers: How to load it.
            ends: Where in the source each chunk ends, in bytes.
        """
        from longtail.models.bundle.registry import Registry
        from longtail.models.predict.predictor import Predictor as BundlePredictor  # brings PyTorch

        self._task = replace(task, label_sets=LabelSets(workers.label_sets))
        self._ends = ends
        self._predictor: Predictor = BundlePredictor.of_bundle(
            Registry(workers.registry).open(task.version),
            device=workers.device,
            num_threads=workers.num_threads,
            precision=workers.precision,
        )

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list[bytes]]:
        """Return the answers to the lines of some chunks, by the numbers of these."""
        return {"answers": [self._answers_of(number) for number in batch["number"].tolist()]}

    def _answers_of(self, number: int) -> bytes:
        start = 0 if number == 0 else int(self._ends[number - 1])
        with self._task.source.open("rb") as file:
            file.seek(start)
            content = file.read(int(self._ends[number]) - start)
        splitter = LineSplitter(MAX_LINE_BYTES)
        lines = [*splitter.feed(content), *splitter.finish()]
        expected = [line for line in lines if line is None or line.strip()]
        return b"".join(answers_to(self._predictor, self._task, number * CHUNK_LINES, expected))


def predict_on_ray(task: Task, workers: Workers, progress: Callable[[int], object] = int) -> Tally:
    """Answer every line of a file; what an earlier run has answered is kept.

    The answers are those of `longtail.service.offline.predict.predict_file` with as many threads,
    byte for byte. Source and registry must lie where every machine of the cluster finds them.

    Args:
        task: What to do.
        workers: Who computes.
        progress: Called with the bytes of the source that were answered since.

    Returns:
        What became of all lines, those of earlier runs among them.

    Raises:
        DataError: The source can't be read.
        ConfigError: Ray is not installed, or what an earlier run has left is about something else.
    """
    ray = start_ray(_ASKED_BY, workers.num_workers * workers.num_threads)
    tally = Tally()
    with working(task):
        num_kept = resume(task, tally)
        unpacked = _unpacked(replace(task, source=task.source.resolve()))
        try:
            _answer_on_ray(ray, task, unpacked, workers, num_kept, tally, progress)
        finally:
            if unpacked.source.suffix == _UNPACKED:
                unpacked.source.unlink(missing_ok=True)
        finish(task)
    return tally


def _answer_on_ray(
    ray: Any,
    task: Task,
    unpacked: Task,
    workers: Workers,
    num_kept: int,
    tally: Tally,
    progress: Callable[[int], object],
) -> None:
    """Write the answers that are missing, counting them."""
    ends = chunk_ends(unpacked.source)
    first = num_kept // CHUNK_LINES
    progress(int(ends[first - 1]) if first else 0)
    with task.part.open("ab") as out:
        chunks = _chunks_of_answers(ray, unpacked, workers, ends, first)
        for number, answers in enumerate(chunks, first):
            lines = answers.splitlines(keepends=True)[max(0, num_kept - number * CHUNK_LINES) :]
            for line in lines:
                tally.note_answer(line)
            out.writelines(lines)
            out.flush()
            os.fsync(out.fileno())
            progress(int(ends[number] - (ends[number - 1] if number else 0)))


def chunk_ends(source: Path) -> Int64[np.ndarray, chunk]:
    """Return where each chunk of `CHUNK_LINES` lines that are not blank ends, in bytes.

    Raises:
        DataError: The file can't be read.
    """
    ends: list[int] = []
    num_lines = 0
    try:
        for stop, is_blank in _line_ends(source):
            num_lines += not is_blank
            if num_lines == CHUNK_LINES and not is_blank:
                ends.append(stop)
                num_lines = 0
        if num_lines:
            ends.append(source.stat().st_size)
    except OSError as error:
        raise DataError(f"{str(source)!r} can't be read to its end: {reason_of(error)}") from error
    return np.array(ends, dtype=np.int64)


def _line_ends(source: Path) -> Iterator[tuple[int, bool]]:
    """Yield where each line ends, in bytes, and whether it is blank; holds a piece at a time."""
    start, position, is_blank = 0, 0, True
    with source.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            *ends, rest = piece.split(b"\n")
            for end in ends:
                position += len(end) + 1
                is_short = position - start <= MAX_LINE_BYTES + 1  # else it is no longer looked at
                yield position, is_short and is_blank and not end.strip()
                start, is_blank = position, True
            position += len(rest)
            is_blank = is_blank and not rest.strip()
    yield position, position - start <= MAX_LINE_BYTES and is_blank


def _unpacked(task: Task) -> Task:
    """Return the task with a source of plain JSON lines, if need be written beside the answers.

    Raises:
        DataError: The source can't be read.
    """
    if is_plain_json_lines(task.source) and not task.columns:
        return task
    path = task.target.resolve().with_name(task.target.name + _UNPACKED)
    with path.open("wb") as out:
        for line in document_lines(
            task.source,
            max_line_bytes=MAX_LINE_BYTES,
            columns=task.columns,
            is_each_line_text=True,
        ):
            # One that is too long becomes another that is too long, which workers refuse.
            out.write((b"x" * (MAX_LINE_BYTES + 1) if line is None else line) + b"\n")
    return replace(task, source=path)


def _chunks_of_answers(
    ray: Any, task: Task, workers: Workers, ends: Int64[np.ndarray, chunk], first: int
) -> Iterator[bytes]:
    """Yield the answers to the lines of each chunk, in order, from the first missing one on."""
    if first == len(ends):
        return
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    # Sets of labels remember the files of this machine; workers read them anew.
    arguments = (replace(task, label_sets=LabelSets()), workers, ends)
    # No tasks make these numbers: they would wait for processors that the workers hold.
    chunks = [{"number": number} for number in range(first, len(ends))]
    numbers = ray.data.from_items(chunks, override_num_blocks=len(chunks))
    answers = numbers.map_batches(
        Answerer,
        fn_constructor_args=arguments,
        batch_size=1,
        batch_format="numpy",
        compute=ray.data.ActorPoolStrategy(size=workers.num_workers),
        num_cpus=workers.num_threads,
        num_gpus=1 if workers.device == "cuda" else None,
    )
    for row in answers.iter_rows():
        yield row["answers"]
