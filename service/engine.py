"""Text to labels, for whatever face asks; knows no HTTP.

A query is admitted or refused, its texts are tokenised on one thread and computed on another, in
batches that queries share. The compute thread owns the compute libraries: GPU indexes are not
thread-safe even for reads, and every thread that computes gets a thread pool of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from models.errors import NotReadyError, RequestError
from service.admission import Admission, DeadlineError, Priority, estimate_tokens
from service.batching import Job, Options, Seconds, WorkQueue
from service.manager import LoadedModel, ModelManager
from service.worker import Observer, compute_batches, tokenise_jobs

if TYPE_CHECKING:  # it brings PyTorch, which only a real model needs
    from models.predictor import Prediction

T = TypeVar("T")

_STOPPING = "the service is stopping; ask another instance"


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that queries may ask for; see `service.settings.Settings`."""

    max_texts: int
    max_text_characters: int
    max_k: int
    max_queue_tokens: int = 2**16
    max_batch_tokens: int | None = None
    request_timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Query:
    """Texts, and what to answer about each.

    Attributes:
        texts: At least one.
        k: Labels wanted a text.
        scorer: One of the model's; None: its default.
        threshold: Least probability of a label.
        correction: As in `models.predictor.Predictor.rank`.
        tail_dial: As there.
        version: A version's number, or "current"; None: the service's first.
        timeout_s: Seconds in which the answer is of use; None: the service's limit, which also
            bounds it.
    """

    texts: Sequence[str]
    k: int = 5
    scorer: str | None = None
    threshold: float | None = None
    correction: str | None = None
    tail_dial: float = 0.0
    version: int | str | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The labels of each text, and who found them in what time."""

    model: LoadedModel
    scorer: str
    predictions: Sequence[Prediction]
    seconds: Seconds


class Engine:
    """Answers queries with the models of a manager; belongs to one event loop."""

    def __init__(
        self,
        manager: ModelManager,
        limits: Limits,
        observer: Observer,
        *,
        prepare_thread: Callable[[], object] = int,
    ) -> None:
        """Take the parts; `start` comes next.

        Args:
            manager: Has the models.
            limits: What queries may ask for.
            observer: Is told of every batch.
            prepare_thread: Called first of all on the compute thread.
        """
        self._manager = manager
        self._limits = limits
        self.admission = Admission(limits.max_queue_tokens)
        self._queue = WorkQueue(limits.max_batch_tokens)
        self._queue.call(prepare_thread)
        self._is_closed = False
        speed = self.admission.note_speed
        # Daemons, so that a process which never comes to `close` can end.
        self._threads = [
            Thread(target=tokenise_jobs, args=(self._queue, observer), name="tokenise_0"),
            Thread(target=compute_batches, args=(self._queue, observer, speed), name="compute_0"),
        ]

    def start(self) -> None:
        """Start to work."""
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    async def predict(self, query: Query) -> Answer:
        """Return the best labels of each text, in order.

        Raises:
            RequestError: The query breaks a limit, or asks for what the model can't do.
            BundleNotFoundError: The version is not loaded.
            NotReadyError: No model is loaded yet, or the service is stopping.
            QueueFullError: Too much work is waiting.
            DeadlineError: The answer was not there in time; what had not begun is dropped.
        """
        model, options, tokens = self._examine(query)
        most_s = self._limits.request_timeout_s
        timeout_s = min(query.timeout_s or most_s, most_s)
        with self.admission.admit(tokens, timeout_s):
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._answer(model, query.texts, options, Priority.INTERACTIVE)
            except TimeoutError as error:
                raise DeadlineError(
                    f"there was no answer within {timeout_s:g} s; ask for fewer texts, allow more "
                    "time, or ask again later"
                ) from error

    async def predict_in_stream(self, query: Query) -> Answer:
        """Return the best labels of each text as soon as there is room for them.

        They go behind what `predict` is asked for, and have no time limit.

        Raises:
            RequestError: As `predict` does.
            BundleNotFoundError: As `predict` does.
            NotReadyError: As `predict` does.
        """
        _, _, tokens = self._examine(query)
        async with self.admission.admit_when_room(tokens):
            model, options, _ = self._examine(query)  # the model may be another one by now
            return await self._answer(model, query.texts, options, Priority.BULK)

    def check_room(self) -> None:
        """Refuse a stream where a single request would be refused, or no model is loaded.

        Raises:
            QueueFullError: Too much work is waiting.
            NotReadyError: No model is loaded yet.
        """
        self._manager.serving()
        self.admission.check(0, self._limits.request_timeout_s)

    def run(self, work: Callable[[], T], /) -> T:
        """Do something on the compute thread between two batches; not for the event loop."""
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

    def _examine(self, query: Query) -> tuple[LoadedModel, Options, int]:
        """Return who is to answer, what, and about how many tokens that is.

        Raises:
            RequestError: The query breaks a limit.
            BundleNotFoundError: The version is not loaded.
            NotReadyError: Nothing is loaded yet.
        """
        _check(query, self._limits)
        model = self._manager.get(query.version)
        scorer = query.scorer or model.predictor.default_scorer
        options = Options(query.k, scorer, query.threshold, query.correction, query.tail_dial)
        most = model.predictor.max_tokens if model.predictor.needs_encoder(scorer) else None
        return model, options, estimate_tokens(query.texts, most)

    async def _answer(
        self, model: LoadedModel, texts: Sequence[str], options: Options, priority: Priority
    ) -> Answer:
        if self._is_closed:
            raise NotReadyError(_STOPPING)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not done.done():
                done.set_result(None)

        def on_done(_: Job) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody is left to answer
                loop.call_soon_threadsafe(wake)

        job = Job(model, texts, options, priority, on_done)
        self._queue.add(job)
        try:
            await done
        finally:
            self._queue.drop(job)
        if job.error is not None:
            raise job.error
        return Answer(model, options.scorer, job.answers, job.seconds)


def _check(query: Query, limits: Limits) -> None:
    if not 1 <= len(query.texts) <= limits.max_texts:
        raise RequestError(
            f"the request has {len(query.texts)} texts; wanted 1 to {limits.max_texts}; "
            "send the others in further requests"
        )
    for index, text in enumerate(query.texts):
        if len(text) > limits.max_text_characters:
            raise RequestError(
                f"text {index} has {len(text)} characters; wanted at most "
                f"{limits.max_text_characters}; shorten it"
            )
    if not 1 <= query.k <= limits.max_k:
        raise RequestError(f"k is {query.k}; wanted 1 to {limits.max_k}")
