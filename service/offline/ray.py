"""A file of lines in, a file of answers out, on a cluster: Ray actors with a model each.

This process reads the lines, in the chunks of `longtail.service.offline.predict`, and writes the
answers in order. An actor that dies is started again and its chunks are answered again, so that
each line has one answer; either way of computing goes on where the other was cut off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from longtail.models.names import OnnxPrecision, Precision
from longtail.models.predict.protocol import Predictor
from longtail.models.ray_runtime import start_ray
from longtail.service.engine.label_sets import LabelSets
from longtail.service.offline.predict import answer_all, answers_to
from longtail.service.offline.unfinished import Task
from longtail.service.wire.tally import Tally

_ASKED_BY = "--engine ray"
_CHUNKS_PER_WORKER = 2
"""Chunks under way: while one is answered, the next one is at the worker."""


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

    def __init__(self, task: Task, workers: Workers) -> None:
        """Load the model of the task's version."""
        from longtail.models.bundle.registry import Registry
        from longtail.models.predict.predictor import Predictor as BundlePredictor  # brings PyTorch

        self._task = replace(task, label_sets=LabelSets(workers.label_sets))
        self._predictor: Predictor = BundlePredictor.of_bundle(
            Registry(workers.registry).open(task.version),
            device=workers.device,
            num_threads=workers.num_threads,
            precision=workers.precision,
        )

    def answers(self, first: int, lines: Sequence[bytes | None]) -> list[bytes]:
        """Return the answers to the lines of a chunk, whose first one has this number."""
        return answers_to(self._predictor, self._task, first, lines)


def predict_on_ray(task: Task, workers: Workers, progress: Callable[[int], object] = int) -> Tally:
    """Answer every line of a file; what an earlier run has answered is kept.

    The answers are those of `longtail.service.offline.predict.predict_file` with as many threads,
    byte for byte.

    Args:
        task: What to do.
        workers: Who computes.
        progress: Called with the bytes of the source that were read since.

    Returns:
        What became of all lines, those of earlier runs among them.

    Raises:
        DataError: The source can't be read.
        ConfigError: Ray is not installed, or what an earlier run has left is about something else.
    """
    ray = start_ray(_ASKED_BY, workers.num_workers * workers.num_threads)
    # Sets of labels remember the files of this machine; workers read them anew.
    sent = replace(task, label_sets=LabelSets())
    return answer_all(task, lambda chunks: _answers(ray, sent, workers, chunks), progress)


def _answers(
    ray: Any, task: Task, workers: Workers, chunks: Iterable[tuple[int, Sequence[bytes | None]]]
) -> Iterator[list[bytes]]:
    """Yield the answers to the lines of each chunk, in order; no chunk starts no worker."""
    remote = ray.remote(Answerer).options(
        num_cpus=workers.num_threads,
        num_gpus=1 if workers.device == "cuda" else 0,
        max_restarts=-1,
        max_task_retries=-1,
    )
    actors: list[Any] = []
    waiting: deque[Any] = deque()
    for number, (first, lines) in enumerate(chunks):
        if number < workers.num_workers:
            actors.append(remote.remote(task, workers))
        waiting.append(actors[number % workers.num_workers].answers.remote(first, lines))
        if len(waiting) == _CHUNKS_PER_WORKER * workers.num_workers:
            yield ray.get(waiting.popleft())
    while waiting:
        yield ray.get(waiting.popleft())
