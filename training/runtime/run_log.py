"""What a run writes down of itself in its folder, and its progress bars.

    STAGE.progress.jsonl   beside a stage's checkpoints: {"step", "loss", "rate", "seconds"}
    stages.jsonl           {"stage", "wall_s", "cpu_s", "peak_rss_bytes", "is_done"}

Nothing of it decides what is trained, and none of it is in a bundle.

Commands show progress bars, Python programs only where they ask with `verbose=True`.
"""

from __future__ import annotations

import json
import logging
import math
import mmap
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from longtail.models.files.durable import write_lines_durably
from longtail.models.platform import peak_memory_bytes

if TYPE_CHECKING:
    from tqdm import tqdm

logger = logging.getLogger(__name__)

STAGES_NAME = "stages.jsonl"
_MAX_LINES = 1000
"""Steps of a stage that are written down, about."""
_SAMPLE_EVERY_S = 0.1
_STATM = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True)
class ProgressPoint:
    """A step of a stage.

    Attributes:
        step: Steps taken, this one included.
        loss: Loss of this step.
        rate: Its learning rate; that of the encoder where there are several.
        seconds: Since the stage began, without what was lost to a break.
    """

    step: int
    loss: float
    rate: float
    seconds: float


class ProgressLog:
    """The losses of one stage, in a file that a resumed run continues, without repeats."""

    def __init__(self, checkpoints: Path, done: int, total: int) -> None:
        """Open the file and drop the steps that will be taken again.

        Args:
            checkpoints: The folder of the stage's checkpoints; the file is next to it.
            done: Steps that the newest checkpoint holds.
            total: Steps of the stage.
        """
        path = progress_path(checkpoints)
        kept = [point for point in read_progress(path) if point.step <= done]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_lines_durably(path, map(_line, kept))
        self._file = path.open("a", encoding="utf-8", newline="\n")
        self._every = math.ceil(total / _MAX_LINES)
        self._total = total
        self._started = time.monotonic() - (kept[-1].seconds if kept else 0.0)

    def __enter__(self) -> ProgressLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def note(self, step: int, loss: float, rate: float) -> None:
        """Write a step down, if it is the first, an n-th or the last one."""
        if step in (1, self._total) or step % self._every == 0:
            seconds = round(time.monotonic() - self._started, 3)
            self._file.write(_line(ProgressPoint(step, loss, rate, seconds)) + "\n")
            self._file.flush()  # so that a killed run leaves it


def _line(point: ProgressPoint) -> str:
    return json.dumps(asdict(point))


def progress_path(checkpoints: Path) -> Path:
    """Return the file of a stage's losses, beside the folder of its checkpoints."""
    return checkpoints.with_name(f"{checkpoints.name}.progress.jsonl")


def read_progress(path: Path) -> list[ProgressPoint]:
    """Return the points of a file; none where there is no file."""
    return [ProgressPoint(**fields) for fields in _read_lines(path)]


@dataclass(frozen=True, slots=True)
class StageCost:
    """What a stage of a run took, all its sessions together.

    Attributes:
        stage: Its name.
        wall_s: Seconds by the clock. Those of a session that was killed are missing.
        cpu_s: Seconds of all its processor cores.
        peak_rss_bytes: Largest resident memory of the process meanwhile: measured where it was the
            largest so far, else as seen ten times a second.
        num_sessions: How often it was started; what had been done was then only loaded.
        is_done: Whether the last session came to its end.
    """

    stage: str
    wall_s: float
    cpu_s: float
    peak_rss_bytes: int
    num_sessions: int
    is_done: bool


@contextmanager
def stage_cost(folder: Path, stage: str) -> Iterator[None]:
    """Log the time and memory of the enclosed work in a run's folder."""
    high_before, wall, cpu = peak_memory_bytes(), time.monotonic(), time.process_time()
    is_done = False
    with _Sampler() as sampler:
        try:
            yield
            is_done = True
        finally:
            high = peak_memory_bytes()
            peak = high if high > high_before or not sampler.peak_bytes else sampler.peak_bytes
            found: dict[str, Any] = {
                "stage": stage,
                "wall_s": round(time.monotonic() - wall, 3),
                "cpu_s": round(time.process_time() - cpu, 3),
                "peak_rss_bytes": peak,
                "is_done": is_done,
            }
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / STAGES_NAME).open("a", encoding="utf-8", newline="\n") as file:
                file.write(json.dumps(found) + "\n")
            logger.info("%s: %.1f s, %.1f s CPU, peak %.2f GiB", stage, found["wall_s"],
                        found["cpu_s"], peak / 2**30)  # fmt: skip


def read_stage_costs(folder: Path) -> list[StageCost]:
    """Return the costs of a run's stages, in the order in which they were first ended."""
    costs: dict[str, StageCost] = {}
    for line in _read_lines(folder / STAGES_NAME):
        before = costs.get(line["stage"])
        costs[line["stage"]] = StageCost(
            line["stage"],
            wall_s=line["wall_s"] + (before.wall_s if before else 0.0),
            cpu_s=line["cpu_s"] + (before.cpu_s if before else 0.0),
            peak_rss_bytes=max(line["peak_rss_bytes"], before.peak_rss_bytes if before else 0),
            num_sessions=1 + (before.num_sessions if before else 0),
            is_done=line["is_done"],
        )
    return list(costs.values())


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            yield json.loads(line)
        except json.JSONDecodeError:  # a killed run did not end it
            continue


class _Sampler:
    """Looks at the resident memory of this process from time to time, where Linux tells it."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> _Sampler:
        if _STATM.exists():
            self._look()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _sample(self) -> None:
        while not self._stopped.wait(_SAMPLE_EVERY_S):
            self._look()

    def _look(self) -> None:
        pages = int(_STATM.read_text().split()[1])
        self.peak_bytes = max(self.peak_bytes, pages * mmap.PAGESIZE)


T = TypeVar("T")

READING_DELAY_S = 2.0
"""Before a bar shows that a file is being read: most are read sooner."""
_IS_SHOWN = ContextVar("is_shown", default=False)


def show_progress() -> None:
    """Show progress bars from now on."""
    _IS_SHOWN.set(True)


@contextmanager
def progress_shown(is_shown: bool) -> Iterator[None]:
    """Show progress bars, or leave it as it is, while the body runs."""
    token = _IS_SHOWN.set(is_shown or _IS_SHOWN.get())
    try:
        yield
    finally:
        _IS_SHOWN.reset(token)


def progress_bar(iterable: Any = None, **options: Any) -> tqdm[Any]:
    """Return a bar of tqdm, which shows itself at most once a second, or not at all."""
    from tqdm import tqdm

    return tqdm(iterable, mininterval=1.0, disable=not _IS_SHOWN.get(), **options)


def counted(documents: Iterable[T], doing: str) -> Iterator[T]:
    """Yield documents that are read, with a bar that counts them where that takes a while."""
    yield from progress_bar(
        documents, desc=doing, unit=" documents", delay=READING_DELAY_S, leave=False
    )
