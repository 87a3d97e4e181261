"""Which texts are computed together: queues of jobs and of texts, and how a batch is cut from them.

A job waits to be tokenised; its texts then wait, one by one, to be computed. Several threads meet
here: the event loop adds and drops jobs, the tokeniser thread moves them on, and each compute
thread takes a batch whenever it is free, so that batches grow while all are busy and nobody waits
while one is not.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.results import Prediction
from longtail.service.engine.admission import Priority, estimate_tokens
from longtail.service.engine.traffic import ArrivalRate, least_batch
from longtail.service.errors import DeadlineError
from longtail.service.versions.serving import ServedModel

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
        compute: Time of the batches that its texts were in, which may have held others' too.
    """

    queue: float = 0.0
    compute: float = 0.0


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
        deadline: When the query waits no longer, by the same clock.
        urgency: What waiting jobs and texts are ordered by, the least first: its time limit behind
            its turn (see `Admission.admit`). So clients take turns, however much each asks for.
        is_over: Whether nobody waits for it any more.
        items: Its texts, once they are ready.
        needs_encoder: Whether its scorer reads texts by the encoder, so that they are tokenised
            before they wait to be computed.
    """

    model: ServedModel
    texts: Sequence[str]
    options: RankingOptions
    priority: Priority
    on_done: Callable[[Job], None]
    predictions: dict[int, Prediction] = field(default_factory=dict)
    error: Exception | None = None
    seconds: Seconds = field(default_factory=Seconds)
    added_at: float = field(default_factory=time.perf_counter)
    deadline: float = math.inf
    urgency: float = math.inf
    is_over: bool = False
    items: Sequence[Item] = ()
    needs_encoder: bool = field(init=False)

    def __post_init__(self) -> None:
        self.needs_encoder = self.model.predictor.scorers.needs_encoder(self.scorer)

    @property
    def scorer(self) -> str:
        """Who scores the labels."""
        assert self.options.scorer is not None
        return self.options.scorer

    def answer(self, number: int, prediction: Prediction) -> None:
        """Take the answer about one text."""
        self.predictions[number] = prediction
        if len(self.predictions) == len(self.texts):
            self.is_over = True
            self.on_done(self)

    def fail(self, error: Exception) -> None:
        """Take an error for the whole job."""
        if not self.is_over:
            self.error = error
            self.is_over = True
            self.on_done(self)


@dataclass(slots=True, eq=False, weakref_slot=True)
class Item:
    """A text that is ready to be computed.

    Attributes:
        job: Whose it is.
        number: Its number there.
        batch: The text alone, tokenised; None where the scorer needs no encoder.
        tokens: That have to be read of it, and what else there is to do for it; at least 1, so that
            texts without a known token are computed together, and not all at once.
    """

    job: Job
    number: int
    batch: TextBatch | None
    tokens: int

    @property
    def kind(self) -> tuple[int, bool]:
        """What texts must have in common to be computed together."""
        return id(self.job.model.predictor), self.job.needs_encoder


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


def untokenised(job: Job) -> list[Item]:
    """Return the texts of a job without an encoder, as they are; tokens are estimated."""
    extra = extra_tokens(job.options)
    tokens = (max(1, estimate_tokens([text], None)) + extra for text in job.texts)
    return [Item(job, number, None, size) for number, size in enumerate(tokens)]


def jobs_of(items: Iterable[Item]) -> list[Job]:
    """Return the jobs that texts belong to, each once."""
    return list(dict.fromkeys(item.job for item in items))


_TOKENISED_CHARACTERS = 2**16
"""In one go: a job that comes meanwhile waits no longer than these take."""
_WINDOW = 4
"""Texts are batched by length from among the oldest ones; this is their number in batches."""
BATCH_COST = 40
"""What a batch costs beside its tokens, in tokens: hundred steps on few rows, and Python."""
_TOO_LATE = (
    "the answer would have come after the time limit, so that nothing was computed for it; allow "
    "more time, or ask again later"
)
_BULK_TURN = 8
"""Every 8th batch serves bulk work if any waits, so that interactive load cannot starve it."""


class WorkQueue:
    """Jobs and texts that wait, by priority, urgency and age."""

    def __init__(
        self,
        max_batch_tokens: int | None,
        speed: Callable[[], float | None] = lambda: None,
        is_helped: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Begin empty.

        Args:
            max_batch_tokens: In one batch, padding included; a longer text makes one of its own;
                None: as the model's predictor says.
            speed: Tells the tokens a second of one worker, `BATCH_COST` among them; None: unknown.
            is_helped: Tells whether threads beside the first one are to take batches.
            clock: Clock of jobs' deadlines, in seconds.
        """
        self._is_helped = is_helped
        self._num_helpers = 0
        self._speed = speed
        self._clock = clock
        self._arrivals = ArrivalRate()
        self._deadlines: dict[Priority, list[tuple[float, int, weakref.ref[Item]]]] = {
            x: [] for x in Priority
        }
        self._numbers = itertools.count()
        self._late: list[Job] = []
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

    @property
    def num_workers(self) -> int:
        """Threads that take batches."""
        return 1 + (self._num_helpers if self._is_helped() else 0)

    def add_worker(self) -> None:
        """Count one more thread that takes batches; what waits is shared among all."""
        with self._has_items:
            self._num_helpers += 1

    def remove_worker(self) -> None:
        """Count one thread less, which has ended."""
        with self._has_items:
            self._num_helpers -= 1

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
                self._arrivals.add(sum(item.tokens for item in items), self._clock())
                if job.deadline < math.inf:
                    for item in items:
                        entry = job.urgency, next(self._numbers), weakref.ref(item)
                        heapq.heappush(self._deadlines[job.priority], entry)
                self._has_items.notify_all()  # notify() might wake a thread that may not take work

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
                self._deadlines[priority].clear()
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
            for job in sorted(waiting, key=lambda each: each.urgency):  # ties by age
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
                    self._is_closed
                    or (takes_calls and self._calls)
                    or ((takes_calls or self._is_helped()) and any(self._items.values()))
                )
            )
            if self._is_closed:
                return None
            if takes_calls and self._calls:
                return self._calls.pop(0)
            batch = self._cut_batch()
            late, self._late = self._late, []
        for job in late:
            job.fail(DeadlineError(_TOO_LATE))
        return batch

    def _cut_batch(self) -> list[Item]:
        waiting = self._whose_turn()
        self._num_batches += 1
        if len(waiting) == 1:  # the usual case, which leaves nothing to choose
            return [waiting.popitem()[0]]
        first = self._most_urgent(waiting)
        max_tokens = self._max_batch_tokens or first.job.model.predictor.batch_tokens
        window = [first]
        tokens = first.tokens
        for item in waiting:
            if tokens > _WINDOW * max_tokens:
                break
            if item.kind == first.kind and item is not first:
                window.append(item)
                tokens += item.tokens
        padding_cost = first.job.model.predictor.padding_cost
        longest = max(item.tokens for item in window)
        cost = _cost(tokens, longest * len(window), padding_cost)
        share = math.ceil(cost / self.num_workers)  # the others' may be free before this ends
        rate = self._arrivals.at(self._clock())
        least = least_batch(rate, self._speed(), self.num_workers, BATCH_COST)
        batch = of_like_length(window, int(min(max_tokens, max(share, least))), padding_cost)
        for item in batch:
            del waiting[item]
        return batch

    def _most_urgent(self, waiting: dict[Item, None]) -> Item:
        """Return the text with the earliest deadline, by its client's turn; of others, the oldest.

        Where others wait, it is none whose answer would come too late: its job is put aside.
        """
        first = self._earliest(waiting)
        speed = self._speed()
        while speed is not None and len(waiting) > len(first.job.items):
            end = self._clock() + (BATCH_COST + first.tokens) / speed
            if end <= first.job.deadline:
                break
            for item in first.job.items:
                waiting.pop(item, None)
            self._late.append(first.job)
            first = self._earliest(waiting)
        return first

    def _earliest(self, waiting: dict[Item, None]) -> Item:
        oldest = next(iter(waiting))
        deadlines = self._deadlines[oldest.job.priority]
        while deadlines:
            item = deadlines[0][2]()
            if item is not None and item in waiting:
                return item
            heapq.heappop(deadlines)  # it is computed, or nobody waits for it
        return oldest

    def _whose_turn(self) -> dict[Item, None]:
        interactive, bulk = (self._items[priority] for priority in Priority)
        is_bulk_turn = self._num_batches % _BULK_TURN == _BULK_TURN - 1
        return bulk if bulk and (is_bulk_turn or not interactive) else interactive


def of_like_length(items: Sequence[Item], max_tokens: int, padding_cost: float = 1.0) -> list[Item]:
    """Return the first text with others that together make the cheapest batch by tokens.

    Of the runs of texts in order of length that hold the first, each as long as may be below its
    longest text, it is the one that costs least for each token of a text: the tokens, what they
    are padded with, and what a batch costs.

    Args:
        items: At least one text; those that go first in front.
        max_tokens: Most that they may cost together; the first is taken in any case.
        padding_cost: Cost of a token of padding, in tokens of text.
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
    return tokens + padding_cost * (padded_tokens - tokens)
