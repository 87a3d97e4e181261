"""Text to labels, whatever protocol asks; knows no HTTP.

A query is admitted or refused. Its texts are tokenised on one thread where an encoder reads them,
and computed on others, in batches that queries share. On a GPU there is one compute thread, as its
indexes are not thread-safe even for reads. On processors there are several, each with few threads
of the libraries.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import TypeVar

from longtail.models.errors import LabelNotFoundError, NotReadyError, ignore
from longtail.models.explain import LabelDetails
from longtail.models.interface.languages import check_language, in_language
from longtail.models.options import RankingOptions
from longtail.models.results import Prediction
from longtail.service.engine.admission import Admission, Priority, estimate_tokens
from longtail.service.engine.batching import (
    EXPLANATION_TOKENS,
    Job,
    Seconds,
    WorkQueue,
    extra_tokens,
    untokenised,
)
from longtail.service.engine.queries import LabelSets, Limits, Query, check_query, options_for
from longtail.service.engine.worker import (
    GpuWatch,
    Hooks,
    compute_batches,
    help_to_compute,
    keep_running,
    tokenise_jobs,
)
from longtail.service.errors import ChangeError, DeadlineError
from longtail.service.schemas.requests import Options
from longtail.service.telemetry.metrics import Telemetry
from longtail.service.versions.serving import ModelManager, ServedModel

T = TypeVar("T")

_STOPPING = "the service is stopping; ask another instance"
_OWN_TEXT = "The service asks itself about imports of olive oil from third countries"
"""What the engine asks itself about (see `longtail.service.engine.self_check`)."""


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """The labels of each text, and who found them in what time.

    Attributes:
        model: Who was asked.
        scorer: Who scored the labels.
        predictions: One for each text.
        seconds: Where the time went.
    """

    model: ServedModel
    scorer: str
    predictions: Sequence[Prediction]
    seconds: Seconds


class Engine:
    """Answers queries with the models of a manager; belongs to one event loop."""

    def __init__(
        self,
        manager: ModelManager,
        limits: Limits,
        telemetry: Telemetry,
        *,
        label_sets: LabelSets | None = None,
        num_workers: int = 1,
        prepare_thread: Callable[[], object] = ignore,
        prepare_work: Callable[[], object] = ignore,
        is_helped: Callable[[], bool] = lambda: True,
    ) -> None:
        """Take the parts; `start` comes next.

        Args:
            manager: Has the models.
            limits: What queries may ask for.
            telemetry: Counts every batch, and how each query ends.
            label_sets: The sets of labels that queries may name.
            num_workers: Compute threads at most.
            prepare_thread: Called first of all on each compute thread; says whether models can be
                computed by several of them.
            prepare_work: Called on them before each piece of work.
            is_helped: Tells whether more than one of them is to compute.
        """
        self._manager = manager
        self._limits = limits
        self._telemetry = telemetry
        self.complete: Callable[[int], Future[None]] | None = None
        """Loads what a version has left out (see `without_encoder`)."""
        self.label_sets = label_sets or LabelSets()
        self._queue = WorkQueue(
            limits.max_batch_tokens, lambda: self.admission.tokens_a_second, is_helped
        )
        self.admission = Admission(limits.max_queue_tokens, lambda: self.num_workers)
        self._queue.call(prepare_thread)
        self._is_closed = False
        self.num_answered = 0
        """Queries that were answered so far, lines of batches among them."""
        self.gpu = GpuWatch()
        hooks = Hooks(prepare_work, self.admission.note_speed, self.gpu.note_errors)
        works = {
            "tokenise_0": partial(tokenise_jobs, self._queue, telemetry),
            "compute_0": partial(compute_batches, self._queue, telemetry, hooks),
        }
        helping = partial(help_to_compute, self._queue, telemetry, hooks, prepare_thread)
        works |= {f"compute_{number}": helping for number in range(1, num_workers)}
        # Daemons, so that a process which never comes to `close` can end.
        self._threads = [
            Thread(target=keep_running, args=(work,), name=name, daemon=True)
            for name, work in works.items()
        ]

    @property
    def num_workers(self) -> int:
        """Compute threads that there are."""
        return self._queue.num_workers

    def start(self) -> None:
        """Start to work."""
        for thread in self._threads:
            thread.start()

    def thread_problem(self) -> str | None:
        """Return which of the threads has ended that nothing works without; None where none has."""
        has_begun = self._threads[0].ident is not None
        if self._is_closed or not has_begun:
            return None
        ended = [thread.name for thread in self._threads[:2] if not thread.is_alive()]
        if not ended:
            return None
        return f"the thread {ended[0]!r} has ended, its cause is in the log; restart the service"

    async def ask_itself(self, timeout_s: float) -> EngineAnswer:
        """Return the best label of a text as a request is answered: admission and all threads."""
        reservation = self.admission.reserve(timeout_s)
        try:
            version = self._manager.serving().default  # a version on trial does not decide
            return await self.predict(Query((_OWN_TEXT,), Options(k=1, version=version), timeout_s))
        finally:
            reservation.release()

    async def predict(self, query: Query) -> EngineAnswer:
        """Return the best labels of each text, in order."""
        most_s = self._limits.request_timeout_s
        timeout_s = min(query.timeout_s or most_s, most_s)
        model, options, tokens = await self._examined(query, timeout_s)
        with self.admission.admit(tokens, timeout_s) as turn:
            return await self._answer(model, query, options, timeout_s, turn)

    async def predict_in_batch(self, query: Query) -> EngineAnswer:
        """Return the best labels of each text as soon as there is room for them.

        They go behind what `predict` is asked for, and have no time limit.
        """
        _, _, tokens = await self._examined(query, None)
        async with self.admission.admit_when_room(tokens):
            model, options, _ = await self._examined(query, None)  # maybe of another model
            return await self._answer(model, query, options, None)

    async def describe(
        self, label_id: str, version: int | str | None = None
    ) -> tuple[ServedModel, LabelDetails]:
        """Return all that a model knows of a label."""
        model = self._manager.get(version)
        if model.predictor.lacks(None):
            await self._completed(model, self._limits.request_timeout_s)
            model = self._manager.get(version)
        row = model.predictor.catalogue.row_of_id(label_id)
        if row is None:
            raise LabelNotFoundError(
                f"version {model.version} has no label with the id {label_id[:100]!r}; look for it "
                "by GET /v1/labels?query=..., and send its id percent-encoded: GET /v1/labels?id="
            )
        return model, await self._look_up(partial(model.predictor.describe, row))

    async def _look_up(self, work: Callable[[], T]) -> T:
        """Return the result of some work on a label, as dear as an explanation."""
        timeout_s = self._limits.request_timeout_s
        with self.admission.admit(EXPLANATION_TOKENS, timeout_s):
            return await self._on_compute_thread(work, timeout_s)

    async def _on_compute_thread(self, work: Callable[[], T], timeout_s: float) -> T:
        """Return the result of some work that is done between two batches."""
        results: list[T] = []
        future = self._queue.call(lambda: results.append(work()))
        try:
            async with asyncio.timeout(timeout_s):
                # Shielded, as the thread would stumble over a call that was cancelled under way.
                await asyncio.shield(asyncio.wrap_future(future))
        except TimeoutError as error:
            raise DeadlineError(
                f"there was no answer within {timeout_s:g} s; ask again later"
            ) from error
        except asyncio.CancelledError:
            if future.cancelled():
                raise NotReadyError(_STOPPING) from None
            raise
        return results[0]

    def check_room(self) -> None:
        """Refuse a batch where a single request would be refused, or no model is loaded."""
        self._manager.serving()
        self.admission.check(0, self._limits.request_timeout_s)

    def run(self, work: Callable[[], T], /) -> T:
        """Do something on the first compute thread between its batches; not for the event loop."""
        results: list[T] = []
        self._queue.call(lambda: results.append(work())).result()
        return results[0]

    def close(self) -> None:
        """Drop what has not begun, and wait for what has."""
        self._is_closed = True
        self._queue.close()
        for thread in self._threads:
            thread.join()
        for job in self._queue.drain():
            job.fail(NotReadyError(_STOPPING))

    async def _completed(self, model: ServedModel, timeout_s: float | None) -> None:
        """Wait until all of a version is loaded."""
        assert self.complete is not None  # only models of a loader leave anything out
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wrap_future(self.complete(model.version))
        except (TimeoutError, ChangeError) as error:
            raise NotReadyError(
                "the encoder, which only some scorers and explanations need, can't be loaded "
                f"({str(error) or 'it takes longer than this request'}); ask again later, or ask "
                f"scorer {model.predictor.scorers.default!r}"
            ) from error

    async def _examined(
        self, query: Query, timeout_s: float | None
    ) -> tuple[ServedModel, RankingOptions, int]:
        """Return what `_examine` does, of a model that has loaded all that the query needs."""
        found = self._examine(query)
        while found[0].predictor.lacks(found[1].scorer, explains=found[1].explain):
            await self._completed(found[0], timeout_s)
            found = self._examine(query)
        return found

    def _examine(self, query: Query) -> tuple[ServedModel, RankingOptions, int]:
        """Return the model, the resolved query and an estimate of its tokens."""
        if self.gpu.problem is not None:
            self.gpu.check()
        check_query(query, self._limits)
        model = self._manager.get_to_predict(query.asked.version)
        predictor = model.predictor
        check_language(predictor.catalogue, query.asked.language)
        options = options_for(query.asked, predictor, self.label_sets)
        assert options.scorer is not None
        is_lacking = predictor.lacks(options.scorer, explains=options.explain)
        is_read = not is_lacking and predictor.scorers.needs_encoder(options.scorer)
        most = predictor.max_tokens if is_read else None
        tokens = estimate_tokens(query.texts, most) + len(query.texts) * extra_tokens(options)
        return model, options, tokens

    async def _answer(
        self,
        model: ServedModel,
        query: Query,
        options: RankingOptions,
        timeout_s: float | None,
        turn: float = math.inf,
    ) -> EngineAnswer:
        """Return the answer of a model."""
        job = await self._done(model, query.texts, options, timeout_s, turn)
        self.num_answered += 1
        catalogue, language = model.predictor.catalogue, query.asked.language
        in_order = (job.predictions[number] for number in range(len(query.texts)))
        predictions = [in_language(prediction, catalogue, language) for prediction in in_order]
        return EngineAnswer(model, job.scorer, predictions, job.seconds)

    async def _done(
        self,
        model: ServedModel,
        texts: Sequence[str],
        options: RankingOptions,
        timeout_s: float | None,
        turn: float,
    ) -> Job:
        if self._is_closed:
            raise NotReadyError(_STOPPING)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        # None of these holds the job: no cycle may hold the model.
        wake = partial(loop.call_soon_threadsafe, _end, done)

        def on_done(_: Job) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody is left to answer
                wake()

        priority = Priority.BULK if timeout_s is None else Priority.INTERACTIVE
        job = Job(model, texts, options, priority, on_done)
        late = None
        if timeout_s is not None:
            job.deadline = time.perf_counter() + timeout_s
            job.urgency = turn + timeout_s
            late = loop.call_later(timeout_s, _end, done, timeout_s)
        if job.needs_encoder:
            self._queue.add(job)
        else:
            self._queue.add_items(job, untokenised(job))
        try:
            await done
        finally:
            self._queue.drop(job)
            if late is not None:
                late.cancel()
        if job.error is not None:
            raise job.error
        return job


def _end(done: asyncio.Future[None], timeout_s: float | None = None) -> None:
    """Let no one wait for a job any longer: it is done, or it had this time and is not."""
    if done.done():
        return
    if timeout_s is None:
        done.set_result(None)
        return
    done.set_exception(
        DeadlineError(
            f"there was no answer within {timeout_s:g} s; ask for fewer texts, allow more time, or "
            "ask again later"
        )
    )
