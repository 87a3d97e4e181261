"""Text to labels through both threads: sharing, failures, time limits, and what is let go."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from longtail.models.bundle.bundle import Bundle
from longtail.models.errors import NotReadyError
from longtail.service.engine.engine import Engine, Limits, Query
from longtail.service.errors import DeadlineError, QueueFullError
from longtail.service.schemas.requests import Options


@dataclass
class Model:
    predictor: object
    version: int = 1


@dataclass
class Models:
    """As much of a manager as an engine asks."""

    models: dict[int, Model]

    def get_to_predict(self, version=None):
        return self.models[version or 1]

    def serving(self):
        return self.models


@dataclass
class Observed:
    batches: list[tuple[int, int]] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)

    def observe_batch(self, num_texts, num_tokens):
        self.batches.append((num_texts, num_tokens))

    def observe_phase(self, phase, seconds):
        assert seconds >= 0
        self.phases.append(phase)


@pytest.fixture
def make_predictor(fake_predictor, registry):
    """Makes fake predictors that wait at a gate, once they have told that they are there."""
    bundle: Bundle = registry.open(1)

    class Gated(fake_predictor):
        def __init__(self):
            super().__init__(bundle)
            self.busy, self.gate = threading.Event(), threading.Event()
            self.encoded = []

        def encode(self, batch):
            self.encoded.append(list(batch.texts))
            if "wait" in batch.texts:
                self.busy.set()
                assert self.gate.wait(60)

    return Gated


@contextmanager
def engine_of(*predictors, observer=None, **limits) -> Iterator[Engine]:
    models = {i: Model(predictor, i) for i, predictor in enumerate(predictors, 1)}
    limits = {"max_texts": 64, "max_text_characters": 1000, "max_k": 8} | limits
    engine = Engine(Models(models), Limits(**limits), observer or Observed())
    engine.start()
    try:
        yield engine
    finally:
        for predictor in predictors:
            predictor.gate.set()
        engine.close()


async def until(event):
    assert await asyncio.to_thread(event.wait, 20)


def query_of(texts, *, version=None, timeout_s=None, **options):
    return Query(texts, Options(version=version, **options), timeout_s)


def begin(engine, *texts, **options):
    return asyncio.create_task(engine.predict(query_of(texts, **options)))


async def all_queued(engine, count):
    """Wait until this number of texts is tokenised, while the compute thread is busy."""
    await until_holds(lambda: sum(map(len, engine._queue._items.values())) >= count)


async def until_holds(condition):
    while not condition():  # noqa: ASYNC110  # another thread makes it hold
        await asyncio.sleep(0)


def scores(answer):
    return [prediction.labels[0].score for prediction in answer.predictions]


def test_queries_that_wait_share_one_pass_of_the_encoder_whatever_they_ask(make_predictor):
    predictor, observed = make_predictor(), Observed()

    async def play(engine):
        first = begin(engine, "wait")
        await until(predictor.busy)
        others = [begin(engine, "aa", k=1), begin(engine, "a", "aaa", k=2), begin(engine, "b", k=2)]
        await all_queued(engine, 4)
        predictor.gate.set()
        return [await task for task in (first, *others)]

    with engine_of(predictor, observer=observed) as engine:
        answers = asyncio.run(play(engine))
    assert [scores(answer) for answer in answers] == [[4], [2], [1, 3], [1]]
    assert [len(answer.predictions[0].labels) for answer in answers] == [5, 1, 2, 2]
    assert predictor.encoded == [["wait"], ["aa", "a", "aaa", "b"]]
    assert predictor.calls == [["wait"], ["aa"], ["a", "aaa", "b"]]
    assert observed.batches == [(1, 1), (4, 4)]
    assert {"queue", "tokenise", "encode", "rank"} == set(observed.phases)


def test_no_answer_mixes_versions(make_predictor):
    old, new = make_predictor(), make_predictor()

    async def play(engine):
        first = begin(engine, "wait")
        await until(old.busy)
        others = [begin(engine, f"{i}", "b" * i, version=1 + i % 2) for i in range(1, 7)]
        await all_queued(engine, 12)
        old.gate.set()
        return [await task for task in (first, *others)]

    with engine_of(old, new) as engine:
        answers = asyncio.run(play(engine))
    assert [answer.model.version for answer in answers] == [1, 2, 1, 2, 1, 2, 1]
    assert old.encoded == [["wait"], ["2", "bb", "4", "bbbb", "6", "bbbbbb"]]
    assert new.encoded == [["1", "b", "3", "bbb", "5", "bbbbb"]]


@pytest.mark.parametrize("where", ["read", "encode", "predict"])
def test_a_failure_belongs_to_the_query_that_caused_it(make_predictor, where):
    class Failing(make_predictor):
        pass

    def failing(self, given, *args, **options):
        texts = getattr(given, "texts", given)
        if "bad" in texts:
            raise ZeroDivisionError
        return getattr(make_predictor, where)(self, given, *args, **options)

    setattr(Failing, where, failing)
    predictor = Failing()

    async def play(engine):
        first = begin(engine, "wait")
        await until(predictor.busy)
        tasks = [begin(engine, text) for text in ("a", "bad", "aa")]
        await all_queued(engine, 2 if where == "read" else 3)
        predictor.gate.set()
        return await asyncio.gather(first, *tasks, return_exceptions=True)

    with engine_of(predictor) as engine:
        _, a, bad, aa = asyncio.run(play(engine))
    assert (scores(a), scores(aa)) == ([1], [2])
    assert isinstance(bad, ZeroDivisionError)


def test_a_deadline_ends_the_wait_and_drops_what_has_not_begun(make_predictor):
    predictor = make_predictor()

    async def play(engine):
        first = begin(engine, "wait")
        await until(predictor.busy)
        with pytest.raises(DeadlineError, match=r"no answer within 0\.001 s"):
            await engine.predict(Query(["late"], timeout_s=0.001))
        assert engine._queue.drain() == set()
        predictor.gate.set()
        await first

    with engine_of(predictor) as engine:
        asyncio.run(play(engine))
        assert engine.admission.tokens == 0
    assert predictor.encoded == [["wait"]]


def test_a_query_may_not_wait_for_longer_than_the_service_lets_it(make_predictor):
    predictor = make_predictor()

    async def play(engine):
        with pytest.raises(DeadlineError, match=r"within 0\.01 s"):
            await engine.predict(Query(["wait"], timeout_s=100))

    with engine_of(predictor, request_timeout_s=0.01) as engine:
        asyncio.run(play(engine))


def test_a_query_that_is_cancelled_is_forgotten(make_predictor):
    predictor = make_predictor()

    async def play(engine):
        first = begin(engine, "wait")
        await until(predictor.busy)
        task = begin(engine, "gone")
        await all_queued(engine, 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        predictor.gate.set()
        await first

    with engine_of(predictor) as engine:
        asyncio.run(play(engine))
    assert predictor.encoded == [["wait"]]


def test_too_much_waiting_is_refused_before_tokenising(make_predictor):
    predictor = make_predictor()

    async def play(engine):
        first = begin(engine, "wait")
        await until(predictor.busy)
        with pytest.raises(QueueFullError):
            await engine.predict(Query(["one text of ten tokens, about: forty chars"]))
        with pytest.raises(QueueFullError):
            engine.check_room()
        predictor.gate.set()
        await first

    with engine_of(predictor, max_queue_tokens=2) as engine:
        asyncio.run(play(engine))
    assert predictor.encoded == [["wait"]]


def test_streams_wait_behind_single_queries(make_predictor):
    predictor = make_predictor()

    async def play(engine):
        first = begin(engine, "wait")
        await until(predictor.busy)
        bulk = [asyncio.create_task(engine.predict_in_batch(Query([text]))) for text in ("x", "yy")]
        await all_queued(engine, 2)
        single = begin(engine, "z")
        await all_queued(engine, 3)
        predictor.gate.set()
        return [await task for task in (first, *bulk, single)]

    with engine_of(predictor) as engine:
        answers = asyncio.run(play(engine))
    assert [scores(answer) for answer in answers] == [[4], [1], [2], [1]]
    assert predictor.encoded == [["wait"], ["z"], ["x", "yy"]]


def test_closing_fails_what_waits_and_lets_what_runs_end(make_predictor):
    predictor = make_predictor()

    async def play(engine):
        first = begin(engine, "wait")
        await until(predictor.busy)
        second = begin(engine, "late")
        await all_queued(engine, 1)
        threading.Timer(0.01, predictor.gate.set).start()
        engine.close()
        with pytest.raises(NotReadyError, match="stopping"):
            await second
        with pytest.raises(NotReadyError, match="stopping"):
            await begin(engine, "later")
        return await first

    with engine_of(predictor) as engine:
        assert scores(asyncio.run(play(engine))) == [4]


@contextmanager
def helped_engine(predictor, may_help) -> Iterator[Engine]:
    engine = Engine(
        Models({1: Model(predictor)}), Limits(64, 1000, 8), Observed(),
        num_workers=2, prepare_thread=lambda: may_help,
    )  # fmt: skip
    engine.start()
    try:
        yield engine
    finally:
        predictor.gate.set()
        engine.close()


def test_a_second_thread_computes_while_the_first_is_busy(make_predictor):
    predictor = make_predictor()

    async def play(engine):
        busy = asyncio.create_task(asyncio.to_thread(engine.run, wait_at_gate))
        await until(predictor.busy)
        answer = await engine.predict(Query(["a"]))
        assert not busy.done()
        predictor.gate.set()
        await busy
        return answer

    def wait_at_gate():
        predictor.busy.set()
        assert predictor.gate.wait(60)

    with helped_engine(predictor, may_help=True) as engine:
        assert scores(asyncio.run(play(engine))) == [1]
        assert engine.num_workers == 2
    assert predictor.threads == {"compute_1"}


def test_a_model_is_let_go_as_soon_as_its_last_answer_is_given(make_predictor):
    models = {1: Model(make_predictor())}
    ref = weakref.ref(models[1].predictor)
    engine = Engine(Models(models), Limits(64, 1000, 8), Observed())
    engine.start()
    asyncio.run(engine.predict(Query(["a"])))
    models.clear()
    engine.run(lambda: None)  # the compute thread is past its batch now
    gc.collect()
    assert ref() is None
    engine.close()
