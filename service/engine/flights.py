"""Equal texts in flight are computed once; those whose answers are kept are not computed at all.

A text is in flight from when a query makes a job of it until the job is over. A query that asks the
same of the same model meanwhile waits for that job too; a job is dropped when nobody waits for it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, Protocol

from longtail.models.options import RankingOptions
from longtail.models.results import Prediction
from longtail.service.engine.admission import Priority
from longtail.service.engine.answer_cache import AnswerCache, CacheKeys, is_kept
from longtail.service.engine.batching import WorkQueue
from longtail.service.engine.jobs import Job, Seconds
from longtail.service.versions.serving import LoadedModel

Origin = Literal["computed", "in_flight", "cache"]
"""Where the answer about a text came from: it was computed for this query, or for another one that
asked the same, or kept from before."""


class ReuseObserver(Protocol):
    """Who wants to know what was not computed again."""

    def count_texts(self, origin: Origin, number: int) -> None:
        """Take how many texts of a query got their answers from where."""
        ...


@dataclass(slots=True)
class Answers:
    """The answers to a query.

    Attributes:
        of_text: By text.
        seconds: Of the query's own job; of waiting alone where it has none.
        num_texts: Texts by where their answers came from.
    """

    of_text: dict[str, Prediction] = field(default_factory=dict)
    seconds: Seconds = field(default_factory=Seconds)
    num_texts: dict[Origin, int] = field(
        default_factory=lambda: {"computed": 0, "in_flight": 0, "cache": 0}
    )


@dataclass(slots=True, eq=False)
class _Flight:
    """A job, and how many queries wait for it.

    Attributes:
        job: Of one query, for others that ask for some of its texts too.
        done: When it is over, by answers or an error.
        group: Where its texts are found by others.
        num_waiting: Queries that wait for it.
    """

    job: Job
    done: asyncio.Future[None]
    group: _Group
    num_waiting: int = 0

    def unlist(self) -> None:
        """Let no further query wait for it."""
        for text in self.job.texts:
            if text in self.group and self.group[text][0] is self:
                del self.group[text]


_Group = dict[str, tuple[_Flight, int]]
"""The texts in flight of one question: in which job, and as which of its texts."""
_Question = tuple[int, Priority, RankingOptions]
"""What texts are asked with: the model, by its `id` (the jobs hold it); a query that may not wait
behind a stream does not wait for one."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a query asks about its texts, and until when."""

    model: LoadedModel
    options: RankingOptions
    priority: Priority
    deadline: float
    turn_s: float

    @property
    def question(self) -> _Question:
        """What others must have in common with it to share its texts."""
        return id(self.model), self.priority, self.options


class Flights:
    """Gets the answers to queries, each text once; belongs to one event loop."""

    def __init__(self, queue: WorkQueue, cache: AnswerCache, observer: ReuseObserver) -> None:
        """Take where jobs wait, where answers are kept, and who is told."""
        self._queue = queue
        self._cache = cache
        self._observer = observer
        self._groups: dict[_Question, _Group] = {}

    async def answers(
        self,
        model: LoadedModel,
        texts: Sequence[str],
        options: RankingOptions,
        priority: Priority,
        *,
        deadline: float = math.inf,
        turn_s: float = 0.0,
        is_fresh: bool = False,
    ) -> Answers:
        """Return the answer about each text.

        Args:
            model: Who is asked.
            texts: Some may be equal.
            options: What is asked.
            priority: Who goes first.
            deadline: Until when the answers are of use, by `time.perf_counter`.
            turn_s: See `Job`.
            is_fresh: Whether an answer that was kept won't do.

        Raises:
            LongtailError: The model can't answer.
        """
        found = Answers()
        keys = None
        if self._cache.is_on and is_kept(options) and not is_fresh:
            keys = CacheKeys.of(model.digest, options)
            for text in dict.fromkeys(texts):
                if (kept := self._cache.get(keys, text)) is not None:
                    found.of_text[text] = kept
        num_cached = sum(text in found.of_text for text in texts)
        missing = [text for text in dict.fromkeys(texts) if text not in found.of_text]
        asked = _Asked(model, options, priority, deadline, turn_s)
        num_computed = await self._fly(asked, missing, found) if missing else 0
        if keys is not None:
            for text in missing:
                self._cache.put(keys, text, found.of_text[text])
        found.num_texts["computed"] = num_computed
        found.num_texts["cache"] = num_cached
        found.num_texts["in_flight"] = len(texts) - num_cached - num_computed
        for origin, number in found.num_texts.items():
            if number:
                self._observer.count_texts(origin, number)
        return found

    async def _fly(self, asked: _Asked, texts: Sequence[str], found: Answers) -> int:
        """Take the answers about unlike texts; return for how many of them a job was made."""
        started = time.perf_counter()
        group = self._groups.setdefault(asked.question, {})
        joined = {text: group[text] for text in texts if text in group}
        own = [text for text in texts if text not in joined]
        begun = self._begin(asked, own, group) if own else None
        places = joined | {text: group[text] for text in own}
        await self._wait_for(list(dict.fromkeys(x for x, _ in places.values())), asked)
        found.seconds = begun.job.seconds if begun else Seconds(time.perf_counter() - started)
        failed = []
        for text, (flight, number) in places.items():
            error = flight.job.error
            if error is None:
                found.of_text[text] = flight.job.predictions[number]
            elif flight is begun or len(flight.job.texts) == 1:
                raise error
            else:  # perhaps by another text of the other query
                failed.append(text)
        again = await self._fly(asked, failed, found) if failed else 0
        return len(own) + again

    def _begin(self, asked: _Asked, texts: Sequence[str], group: _Group) -> _Flight:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not done.done():
                done.set_result(None)

        def on_done(_: Job) -> None:  # holds neither job nor flight: no cycle may hold the model
            with suppress(RuntimeError):  # the loop is closed: nobody is left to answer
                loop.call_soon_threadsafe(wake)

        job = Job(asked.model, texts, asked.options, asked.priority, on_done)
        job.deadline, job.turn_s = asked.deadline, asked.turn_s
        flight = _Flight(job, done, group)
        group.update({text: (flight, number) for number, text in enumerate(texts)})
        self._queue.add(job)
        return flight

    async def _wait_for(self, flights: Sequence[_Flight], asked: _Asked) -> None:
        """Wait until all jobs are over; drop those that nobody waits for any more."""
        for flight in flights:
            flight.num_waiting += 1
            flight.job.last_deadline = max(flight.job.last_deadline, asked.deadline)
        try:
            for flight in flights:
                await asyncio.wait((flight.done,))  # which others may wait for, so it stays as is
        finally:
            for flight in flights:
                flight.num_waiting -= 1
                if flight.done.done() or not flight.num_waiting:
                    flight.unlist()
                if not flight.num_waiting:
                    self._queue.drop(flight.job)
                if not flight.group and self._groups.get(asked.question) is flight.group:
                    del self._groups[asked.question]
