"""Equal texts in flight are computed once: who shares, who waits, who may leave."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from longtail.models.errors import NotReadyError, RequestError
from longtail.models.options import RankingOptions
from longtail.models.results import LabelScore, Prediction
from longtail.service.engine.admission import Priority
from longtail.service.engine.answer_cache import AnswerCache
from longtail.service.engine.batching import WorkQueue
from longtail.service.engine.flights import Flights

MODEL = SimpleNamespace(digest="d1", version=1)
OPTIONS = RankingOptions(k=1, scorer="sparse")


def answer_of(text):
    label = LabelScore(0, "L0", "Label 0", float(len(text)), None)
    return Prediction((label,), 1, False, True, "none", 1, 1)


@dataclass
class Tower:
    """Flights over a queue that the test empties by hand, as the threads would."""

    cache: AnswerCache = field(default_factory=AnswerCache)
    origins: list[tuple[str, int]] = field(default_factory=list)

    def __post_init__(self):
        self.queue = WorkQueue(None)
        self.flights = Flights(self.queue, self.cache, self)
        self.cache.keep(["d1"])

    def count_texts(self, origin, number):
        self.origins.append((origin, number))

    async def ask(self, *texts, model=MODEL, options=OPTIONS, bulk=False, is_fresh=False):
        """Begin to ask; return when it waits."""
        priority = Priority.BULK if bulk else Priority.INTERACTIVE
        task = asyncio.create_task(
            self.flights.answers(model, texts, options, priority, is_fresh=is_fresh)
        )
        await asyncio.sleep(0)
        return task

    @property
    def waiting(self):
        return [job for jobs in self.queue._jobs.values() for job in jobs]

    @property
    def asked(self):
        return [list(job.texts) for job in self.waiting]

    async def compute(self, error=None):
        """Answer or fail everything that waits."""
        for job in self.queue.drain():
            if error is not None:
                job.fail(error)
            for number, text in enumerate(job.texts if error is None else ()):
                job.answer(number, answer_of(text))
        await asyncio.sleep(0)


def play(script):
    """Run a script with a tower that must be empty at its end."""

    async def run():
        tower = script.tower if hasattr(script, "tower") else Tower()
        await script(tower)
        assert tower.flights._groups == {}
        assert tower.waiting == []

    asyncio.run(run())


def test_equal_texts_of_equal_questions_are_computed_once():
    async def script(tower):
        tasks = [await tower.ask("olive oil") for _ in range(3)]
        assert tower.asked == [["olive oil"]]
        await tower.compute()
        found = [await task for task in tasks]
        assert [each.of_text for each in found] == [{"olive oil": answer_of("olive oil")}] * 3
        assert tower.origins == [("computed", 1), ("in_flight", 1), ("in_flight", 1)]
        assert [each.seconds.compute for each in found[1:]] == [0, 0]

    play(script)


def test_a_query_computes_only_those_of_its_texts_that_nobody_does_and_each_once():
    async def script(tower):
        first = await tower.ask("a", "bb")
        second = await tower.ask("bb", "ccc", "ccc", "a")
        assert tower.asked == [["a", "bb"], ["ccc"]]
        await tower.compute()
        assert (await first).num_texts == {"computed": 2, "in_flight": 0, "cache": 0}
        found = await second
        assert {text: x.labels[0].score for text, x in found.of_text.items()} == {
            "a": 1, "bb": 2, "ccc": 3,
        }  # fmt: skip
        assert found.num_texts == {"computed": 1, "in_flight": 3, "cache": 0}

    play(script)


@pytest.mark.parametrize(
    "other",
    [
        {"model": SimpleNamespace(digest="d1", version=2)},
        {"options": RankingOptions(k=2, scorer="sparse")},
        {"bulk": True},  # must not make an interactive query wait behind a stream
    ],
)
def test_other_models_options_and_priorities_are_computed_apart(other):
    async def script(tower):
        tasks = [await tower.ask("a", **other), await tower.ask("a")]
        assert sorted(tower.asked) == [["a"], ["a"]]
        await tower.compute()
        await asyncio.gather(*tasks)

    play(script)


@pytest.mark.parametrize("leaver", [0, 1])
def test_who_leaves_takes_nothing_from_the_others(leaver):
    async def script(tower):
        tasks = [await tower.ask("a"), await tower.ask("a")]
        tasks[leaver].cancel()
        await asyncio.sleep(0)
        assert tower.asked == [["a"]]
        late = await tower.ask("a")
        assert tower.asked == [["a"]]
        await tower.compute()
        assert (await tasks[1 - leaver]).of_text == (await late).of_text == {"a": answer_of("a")}
        with pytest.raises(asyncio.CancelledError):
            await tasks[leaver]

    play(script)


def test_what_nobody_waits_for_any_more_is_dropped_and_not_joined():
    async def script(tower):
        tasks = [await tower.ask("a"), await tower.ask("a")]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert tower.asked == []
        again = await tower.ask("a")
        assert tower.asked == [["a"]]
        await tower.compute()
        await again

    play(script)


def test_an_error_reaches_all_who_wait():
    async def script(tower):
        tasks = [await tower.ask("a"), await tower.ask("a", "b")]
        await tower.compute(NotReadyError("stopping"))
        for task in tasks:
            with pytest.raises(NotReadyError, match="stopping"):
                await task
        assert tower.origins == []

    play(script)


def test_an_error_of_a_query_of_several_texts_is_only_its_own():
    async def script(tower):
        several = await tower.ask("a", "bad")
        single = await tower.ask("a")
        assert tower.asked == [["a", "bad"]]
        await tower.compute(RequestError("text 1 is bad"))
        with pytest.raises(RequestError, match="text 1"):
            await several
        await asyncio.sleep(0)
        assert tower.asked == [["a"]]
        await tower.compute()
        assert (await single).of_text == {"a": answer_of("a")}

    play(script)


def test_after_an_answer_the_text_is_computed_again():
    async def script(tower):
        for _ in range(2):
            task = await tower.ask("a")
            assert tower.asked == [["a"]]
            await tower.compute()
            await task
        assert tower.origins == [("computed", 1)] * 2

    play(script)


def test_kept_answers_are_not_computed_again():
    async def script(tower):
        task = await tower.ask("a", "b")
        await tower.compute()
        await task
        again = await tower.ask("b", "c", "a", "b")
        assert tower.asked == [["c"]]
        await tower.compute()
        assert (await again).num_texts == {"computed": 1, "in_flight": 0, "cache": 3}
        whole = await (await tower.ask("c", "c"))
        assert whole.of_text == {"c": answer_of("c")}
        assert whole.seconds.compute == 0
        assert tower.origins == [("computed", 2), ("computed", 1), ("cache", 3), ("cache", 2)]

    script.tower = Tower(AnswerCache(10**6))
    play(script)


@pytest.mark.parametrize(
    "asked", [{"is_fresh": True}, {"options": RankingOptions(1, "sparse", explain=True)}]
)
def test_neither_explanations_nor_self_checks_are_answered_from_what_is_kept(asked):
    async def script(tower):
        for _ in range(2):
            task = await tower.ask("a", **asked)
            assert tower.asked == [["a"]]
            await tower.compute()
            await task
        assert len(tower.cache) == 0

    script.tower = Tower(AnswerCache(10**6))
    play(script)


def test_failures_are_not_kept():
    async def script(tower):
        task = await tower.ask("a")
        await tower.compute(RequestError("no"))
        with pytest.raises(RequestError):
            await task
        assert len(tower.cache) == 0

    script.tower = Tower(AnswerCache(10**6))
    play(script)
