"""Which texts are computed together: queues of jobs and of texts, and how a batch is cut from them.

A job waits to be tokenised; its texts then wait, one by one, to be computed. Several threads meet
here: the event loop adds and drops jobs, the tokeniser thread moves them on, and each compute
thread takes a batch whenever it is free, so that batches grow while all are busy and nobody waits
while one is not.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from models.options import RankingOptions
from models.predict.protocol import PreparedTexts
from models.results import Prediction
from service.engine.admission import Priority
from service.versions.serving import LoadedModel

_TOKENISED_CHARACTERS = 2**16
"""In one go: a job that comes meanwhile waits no longer than these take."""
_WINDOW = 4
"""Texts are batched by length from among the oldest ones: so many batches' worth of them."""
BATCH_COST = 40
"""What a batch costs beside its tokens, in tokens: hundred steps on few rows, and Python."""
_BULK_TURN = 8
"""Every 8th batch serves bulk work if any waits, so that interactive load cannot starve it."""


EXPLANATION_TOKENS = 16
"""Tokens of text that take about as long as the explanation of a label."""


def extra_tokens(options: RankingOptions) -> int:
    """Return what has to be done for a text besides reading it, in tokens that take as long."""
    return EXPLANATION_TOKENS * options.k if options.explain else 0


@dataclass(slots=True)
class Seconds:
    """Where the time of a job went.

    Attributes:
        queue: Until the first of its texts was computed; tokenising is part of it.
        compute: Of the batches that its texts were in, which may have held others' too.
        phases: When each phase began first and ended last, by `time.perf_counter`.
    """

    queue: float = 0.0
    compute: float = 0.0
    phases: dict[str, tuple[float, float]] = field(default_factory=dict)

    def note(self, phase: str, started: float, ended: float) -> None:
        """Take when a phase began and ended; several pieces of it make one."""
        first, _ = self.phases.get(phase, (started, ended))
        self.phases[phase] = first, ended


@dataclass(slots=True, eq=False)
class Job:
    """Texts of one query.

    Attributes:
        model: Who is to answer.
        texts: What about.
        options: What to answer; they name the scorer.
        priority: Who goes first.
        on_done: Called once, on whatever thread, when there are answers or an error.
        predictions: The answers so far, by the number of the text.
        error: Why there are none.
        seconds: Where its time went.
        added_at: When it began to wait, by `time.perf_counter`.
        is_over: Whether nobody waits for it any more.
        items: Its texts, once tokenised.
    """

    model: LoadedModel
    texts: Sequence[str]
    options: RankingOptions
    priority: Priority
    on_done: Callable[[Job], None]
    predictions: dict[int, Prediction] = field(default_factory=dict)
    error: Exception | None = None
    seconds: Seconds = field(default_factory=Seconds)
    added_at: float = field(default_factory=time.perf_counter)
    is_over: bool = False
    items: Sequence[Item] = ()

    @property
    def scorer(self) -> str:
        """Who scores the labels."""
        assert self.options.scorer is not None
        return self.options.scorer

    def answer(self, number: int, prediction: Prediction) -> None:
        """Take the answer about one text."""
        self.predictions[number] = prediction
        if len(self.predictions) == len(self.texts):
            self._end()

    @property
    def answers(self) -> list[Prediction]:
        """The answers about all texts, in their order."""
        return [self.predictions[number] for number in range(len(self.texts))]

    def fail(self, error: Exception) -> None:
        """Take an error for the whole job."""
        if not self.is_over:
            self.error = error
            self._end()

    def _end(self) -> None:
        self.is_over = True
        self.on_done(self)


@dataclass(slots=True, eq=False)
class Item:
    """A text that is ready to be computed.

    Attributes:
        job: Whose it is.
        number: Its number there.
        batch: The text alone, tokenised.
        tokens: That have to be read of it, and what else there is to do for it; at least 1, so that
            texts without a known token are computed together, and not all at once.
    """

    job: Job
    number: int
    batch: PreparedTexts
    tokens: int

    @property
    def kind(self) -> tuple[int, bool]:
        """What texts must have in common to be computed together."""
        predictor = self.job.model.predictor
        return id(predictor), predictor.needs_encoder(self.job.scorer)


@dataclass(frozen=True, slots=True)
class ThreadCall:
    """Something else that the first compute thread is to do."""

    function: Callable[[], object]
    future: Future[None] = field(default_factory=Future)

    def run(self) -> None:
        """Do it, and say how it ended."""
        try:
            self.function()
        except BaseException as error:  # noqa: BLE001  # it is the caller's
            self.future.set_exception(error)
        else:
            self.future.set_result(None)


class WorkQueue:
    """Jobs and texts that wait, by priority and then by age.

    Attributes:
        num_workers: Threads that take batches.
    """

    def __init__(self, max_batch_tokens: int | None) -> None:
        """Begin empty.

        Args:
            max_batch_tokens: In one batch, padding included; a longer text makes one of its own;
                None: as the model's predictor says.
        """
        self.num_workers = 1
        self._max_batch_tokens = max_batch_tokens
        # Dictionaries, of which only the keys matter: in order of age, and any can leave at once.
        self._jobs: dict[Priority, dict[Job, None]] = {priority: {} for priority in Priority}
        self._items: dict[Priority, dict[Item, None]] = {priority: {} for priority in Priority}
        self._calls: list[ThreadCall] = []
        self._num_batches = 0
        self._is_closed = False
        lock = threading.Lock()
        self._has_jobs = threading.Condition(lock)
        self._has_items = threading.Condition(lock)

    def add_worker(self) -> None:
        """Count one more thread that takes batches; what waits is shared among all."""
        with self._has_items:
            self.num_workers += 1

    def remove_worker(self) -> None:
        """Count one thread less, which has ended."""
        with self._has_items:
            self.num_workers -= 1

    def add(self, job: Job) -> None:
        """Let a job wait; a queue that is closed keeps none (see `drain`)."""
        with self._has_jobs:
            self._jobs[job.priority][job] = None
            self._has_jobs.notify()

    def drop(self, job: Job) -> None:
        """Forget a job: what has not begun of it never will."""
        with self._has_jobs:
            job.is_over = True
            self._jobs[job.priority].pop(job, None)
            for item in job.items:
                self._items[job.priority].pop(item, None)
            job.items = ()  # a cycle would hold the model until it is next collected

    def add_items(self, job: Job, items: Sequence[Item]) -> None:
        """Let the texts of a job wait, which is tokenised now; unless it was dropped meanwhile."""
        with self._has_items:
            if not job.is_over:
                job.items = items
                self._items[job.priority].update(dict.fromkeys(items))
                self._has_items.notify(len(items))

    def call(self, function: Callable[[], object]) -> Future[None]:
        """Let the first compute thread call a function between two of its batches.

        Returns:
            How that ends; cancelled when the queue is closed before.
        """
        call = ThreadCall(function)
        with self._has_items:
            self._calls.append(call)
            if self._is_closed:
                call.future.cancel()
            self._has_items.notify_all()  # threads that take no calls keep waiting
        return call.future

    def close(self) -> None:
        """Let no thread wait any longer."""
        with self._has_jobs:
            self._is_closed = True
            for call in self._calls:
                call.future.cancel()
            self._has_jobs.notify_all()
            self._has_items.notify_all()

    def drain(self) -> set[Job]:
        """Forget and return all jobs."""
        with self._has_jobs:
            jobs = {job for waiting in self._jobs.values() for job in waiting}
            jobs |= {item.job for waiting in self._items.values() for item in waiting}
            for priority in Priority:
                self._jobs[priority].clear()
                self._items[priority].clear()
            return jobs

    def next_jobs(self) -> list[Job]:
        """Wait for jobs of one priority and take some; none when the queue is closed."""
        with self._has_jobs:
            self._has_jobs.wait_for(lambda: self._is_closed or any(self._jobs.values()))
            if self._is_closed:
                return []
            waiting = next(filter(None, self._jobs.values()))
            taken: list[Job] = []
            characters = 0
            for job in waiting:
                characters += sum(map(len, job.texts))
                if taken and characters > _TOKENISED_CHARACTERS:
                    break
                taken.append(job)
            for job in taken:
                del waiting[job]
            return taken

    def next_work(self, *, takes_calls: bool = True) -> list[Item] | ThreadCall | None:
        """Wait for work of a compute thread: a batch, or a call; None when the queue is closed.

        A batch holds the text that has waited longest, and others of similar length.
        """
        with self._has_items:
            self._has_items.wait_for(
                lambda: (
                    self._is_closed or (takes_calls and self._calls) or any(self._items.values())
                )
            )
            if self._is_closed:
                return None
            return self._calls.pop(0) if takes_calls and self._calls else self._cut_batch()

    def _cut_batch(self) -> list[Item]:
        waiting = self._whose_turn()
        first = next(iter(waiting))
        max_tokens = self._max_batch_tokens or first.job.model.predictor.batch_tokens
        window: list[Item] = []
        tokens = 0
        for item in waiting:
            if tokens > _WINDOW * max_tokens:
                break
            if item.kind == first.kind:
                window.append(item)
                tokens += item.tokens
        padding_cost = first.job.model.predictor.padding_cost
        longest = max(item.tokens for item in window)
        cost = _cost(tokens, longest * len(window), padding_cost)
        share = math.ceil(cost / self.num_workers)  # the others' may be free before this ends
        batch = of_like_length(window, min(max_tokens, share), padding_cost)
        for item in batch:
            del waiting[item]
        self._num_batches += 1
        return batch

    def _whose_turn(self) -> dict[Item, None]:
        interactive, bulk = (self._items[priority] for priority in Priority)
        is_bulk_turn = self._num_batches % _BULK_TURN == _BULK_TURN - 1
        return bulk if bulk and (is_bulk_turn or not interactive) else interactive


def of_like_length(items: Sequence[Item], max_tokens: int, padding_cost: float = 1.0) -> list[Item]:
    """Return the first of some texts, with those that make a batch whose tokens cost least.

    Of the runs of texts in order of length that hold the first, each as long as may be below its
    longest text, it is the one that costs least for each token of a text: the tokens, what they
    are padded with, and what a batch costs.

    Args:
        items: At least one text; those that go first in front.
        max_tokens: Most that they may cost together; the first is taken in any case.
        padding_cost: Of a token of padding, in tokens of text.
    """
    order = sorted(range(len(items)), key=lambda i: items[i].tokens)  # ties by age
    first = order.index(0)
    sums = [0, *itertools.accumulate(items[i].tokens for i in order)]
    best, least = slice(first, first + 1), math.inf
    start = 0
    for end in range(first + 1, len(order) + 1):
        longest = items[order[end - 1]].tokens
        while True:
            tokens = sums[end] - sums[start]
            cost = _cost(tokens, longest * (end - start), padding_cost)
            if cost <= max_tokens or start == end - 1:
                break
            start += 1
        if start > first:  # with so long a text there is no room for the first
            break
        cost_of_token = (cost + BATCH_COST) / max(1, tokens)
        if cost_of_token < least:
            best, least = slice(start, end), cost_of_token
    return [items[i] for i in order[best]]


def _cost(tokens: int, padded_tokens: int, padding_cost: float) -> float:
    """Return what texts cost together, in tokens of text."""
    return tokens + padding_cost * (padded_tokens - tokens)


def jobs_of(items: Iterable[Item]) -> list[Job]:
    """Return the jobs that texts belong to, each once."""
    return list(dict.fromkeys(item.job for item in items))
