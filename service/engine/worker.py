"""What the working threads do: tokenise jobs, and compute the labels of a batch of texts.

A failure belongs to the job that caused it: where several fail together, each is tried alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import current_thread

from longtail.models.errors import LongtailError, NotReadyError, RequestError
from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.predict.predictor import Predictor
from longtail.models.processor import gpu_problem
from longtail.models.results import Prediction
from longtail.service.engine.batching import (
    BATCH_COST,
    Item,
    Job,
    ThreadCall,
    WorkQueue,
    extra_tokens,
    jobs_of,
)
from longtail.service.telemetry.metrics import Telemetry

logger = logging.getLogger(__name__)

_RESTART_PAUSE_S = 0.1
"""Seconds before a thread restarts, so that an immediate failure does not keep a core busy."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a compute thread calls.

    Attributes:
        prepare: Before each piece of work.
        note_speed: After a batch, with its tokens and seconds.
        note_errors: After a batch of which something failed, with who computed it and the errors.
    """

    prepare: Callable[[], object]
    note_speed: Callable[[int, float], object]
    note_errors: Callable[[Predictor, Sequence[Exception]], object]


class GpuWatch:
    """Knows whether the GPU can still be used by this process.

    Attributes:
        problem: Why only a new process can answer; None: there is no such reason.
    """

    def __init__(self) -> None:
        self.problem: str | None = None

    def note_errors(self, predictor: Predictor, errors: Sequence[Exception]) -> None:
        """Look at the GPU after errors of a batch, unless they are of our own kinds."""
        is_ours = all(isinstance(error, LongtailError) for error in errors)
        if predictor.device != "cpu" and not is_ours and self.problem is None:
            self.problem = gpu_problem()
            if self.problem is not None:
                logger.error("not alive any more: %s", self.problem)

    def check(self) -> None:
        """Do nothing unless only a new process can answer."""
        if self.problem is not None:
            raise NotReadyError(
                f"the GPU can't be used by this process any more ({self.problem}); restart the "
                "service"
            )


def tokenise_jobs(queue: WorkQueue, telemetry: Telemetry) -> None:
    """Tokenise queued texts until the queue is closed."""
    while _tokenise_next(queue, telemetry):
        pass


def compute_batches(queue: WorkQueue, telemetry: Telemetry, hooks: Hooks) -> None:
    """Compute queued batches and run queued calls until the queue is closed."""
    while _compute_next(queue, telemetry, hooks):
        pass


def help_to_compute(
    queue: WorkQueue, telemetry: Telemetry, hooks: Hooks, prepare_thread: Callable[[], object]
) -> None:
    """Compute batches beside the first thread, which does all else.

    Args:
        queue: As for `compute_batches`.
        telemetry: As there.
        hooks: As there.
        prepare_thread: Called first; says whether models can be computed by several threads.
    """
    if prepare_thread():
        queue.add_worker()
        try:
            while _compute_next(queue, telemetry, hooks, takes_calls=False):
                pass
        finally:
            queue.remove_worker()


def keep_running(work: Callable[[], None]) -> None:
    """Do work until it returns; where an error ends it, log the error and restart.

    One request must not take a thread from all others, whatever it does to it.
    """
    while True:
        try:
            work()
        except BaseException:  # also what is meant to end a thread: the service needs it
            logger.exception("the thread %r restarts", current_thread().name)
            time.sleep(_RESTART_PAUSE_S)
        else:
            return


def compute(items: Sequence[Item], telemetry: Telemetry) -> None:
    """Answer or fail all of these texts, which are of one model and of one kind."""
    started = time.perf_counter()
    try:
        batch = _encoded(items)
    except Exception as error:  # noqa: BLE001  # whatever it is, it belongs to a job
        _fail_or_split(items, error, lambda part: compute(part, telemetry))
        return
    encoded = time.perf_counter()
    rows_of: dict[RankingOptions, list[int]] = {}
    for row, item in enumerate(items):
        rows_of.setdefault(item.job.options, []).append(row)
    answers: list[tuple[Item, Prediction]] = []
    for rows in rows_of.values():
        part = batch if len(rows) == len(items) else batch.take(rows)
        answers += _ranked(part, [items[row] for row in rows])
    ranked = time.perf_counter()
    telemetry.observe_phase("encode", encoded - started)
    telemetry.observe_phase("rank", ranked - encoded)
    for job in jobs_of(items):
        job.seconds.compute += ranked - started
    for item, prediction in answers:
        item.job.answer(item.number, prediction)


def _tokenise_next(queue: WorkQueue, telemetry: Telemetry) -> bool:
    """Tokenise the next jobs; return whether there were any.

    A function of its own, so that the thread holds no job, and by it no model, while it waits.
    """
    jobs = queue.next_jobs()
    groups: dict[tuple[int, str], list[Job]] = {}
    for job in jobs:
        groups.setdefault((id(job.model.predictor), job.scorer), []).append(job)
    for group in groups.values():
        started = time.perf_counter()
        with _failing(group):
            _tokenise(group, queue)
        telemetry.observe_phase("tokenise", time.perf_counter() - started)
    return bool(jobs)


def _compute_next(
    queue: WorkQueue,
    telemetry: Telemetry,
    hooks: Hooks,
    *,
    takes_calls: bool = True,
) -> bool:
    """Compute the next batch; return whether there was one (see `_tokenise_next`)."""
    work = queue.next_work(takes_calls=takes_calls)
    if work is None:
        return False
    hooks.prepare()
    if isinstance(work, ThreadCall):
        work.run()
        return True
    started = time.perf_counter()
    for job in jobs_of(work):
        if not job.seconds.queue:
            job.seconds.queue = started - job.added_at
            telemetry.observe_phase("queue", job.seconds.queue)
    with _failing(jobs_of(work)):
        compute(work, telemetry)
    tokens = sum(item.tokens for item in work)
    if errors := [job.error for job in jobs_of(work) if job.error]:  # which say nothing of speed
        hooks.note_errors(work[0].job.model.predictor, errors)
    else:
        # With what a batch costs beside its tokens: small batches alone don't mean that it is slow.
        hooks.note_speed(BATCH_COST + tokens, time.perf_counter() - started)
    telemetry.observe_batch(len(work), tokens)
    return True


@contextmanager
def _failing(jobs: Sequence[Job]) -> Iterator[None]:
    """Let an error that belongs to no job fail all of these, and the thread go on.

    What is no `Exception` ends what the thread is doing (see `keep_running`), but leaves none of
    them waiting.
    """
    try:
        yield
    except BaseException as error:
        logger.exception("jobs failed outside of the model with %s", type(error).__name__)
        cause = (
            error if isinstance(error, Exception) else RuntimeError(f"a thread ended: {error!r}")
        )
        for job in jobs:
            job.fail(cause)
        if cause is not error:
            raise


def _tokenise(jobs: Sequence[Job], queue: WorkQueue) -> None:
    predictor, scorer = jobs[0].model.predictor, jobs[0].scorer
    try:
        batch = predictor.read([text for job in jobs for text in job.texts])
        tokens = predictor.prepare(batch, scorer)
    except Exception as error:  # noqa: BLE001  # whatever it is, it belongs to a job
        if len(jobs) == 1:
            jobs[0].fail(error)
            return
        for job in jobs:
            _tokenise([job], queue)
        return
    is_one = len(tokens) == 1  # which is most often so, and needs no copy
    texts = iter([(batch if is_one else batch.take([i]), tokens[i]) for i in range(len(tokens))])
    for job in jobs:
        extra = extra_tokens(job.options)
        numbered = zip(range(len(job.texts)), texts, strict=False)
        queue.add_items(
            job,
            [Item(job, number, text, max(1, size) + extra) for number, (text, size) in numbered],
        )


def _encoded(items: Sequence[Item]) -> TextBatch:
    predictor = items[0].job.model.predictor
    batches = [item.batch for item in items if item.batch is not None]
    if not batches:
        return predictor.read([item.job.texts[item.number] for item in items])
    batch = type(batches[0]).joined(batches)
    predictor.encode(batch)
    return batch


def _ranked(batch: TextBatch, items: Sequence[Item]) -> list[tuple[Item, Prediction]]:
    """Return the answers about texts of the same options; missing answers are left out."""
    model, options = items[0].job.model, items[0].job.options
    answers: list[tuple[Item, Prediction]] = []
    try:
        predictions = model.predictor.predict_batch(batch, options)
        answers += zip(items, predictions, strict=True)
    except RequestError as error:  # all have asked for the same
        for job in jobs_of(items):
            job.fail(error)
    except Exception as error:  # noqa: BLE001  # whatever it is, it belongs to a job
        row_of = {item: row for row, item in enumerate(items)}

        def try_again(part: Sequence[Item]) -> None:
            answers.extend(_ranked(batch.take([row_of[item] for item in part]), part))

        _fail_or_split(items, error, try_again)
    return answers


def _fail_or_split(
    items: Sequence[Item], error: Exception, try_again: Callable[[Sequence[Item]], None]
) -> None:
    """Let the only job fail; or try again with the texts of each job alone."""
    jobs = jobs_of(items)
    if len(jobs) == 1:
        jobs[0].fail(error)
        return
    for job in jobs:
        try_again([item for item in items if item.job is job])
