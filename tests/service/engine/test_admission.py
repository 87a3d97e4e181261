"""Who may wait: bounds in tokens and in time, for single requests and for streams."""

import asyncio
import math
from collections import deque
from contextlib import ExitStack
from types import SimpleNamespace

import numpy as np
import pytest

import longtail.service.engine.admission
from longtail.service.engine.admission import Admission, estimate_tokens
from longtail.service.engine.traffic import Slots, set_client
from longtail.service.errors import QueueFullError


@pytest.fixture(autouse=True)
def _no_client_of_another_test():
    set_client("")


def test_tokens_are_estimated_from_characters_up_to_what_is_read():
    texts = ["a" * 40, "a" * 4000, ""]
    assert estimate_tokens(texts, None) == 12 + 1002 + 2
    assert estimate_tokens(texts, 100) == 12 + 100 + 2


def test_work_is_refused_when_too_many_tokens_wait_and_let_in_again_after():
    admission = Admission(100)
    with admission.admit(60, 10):
        with pytest.raises(QueueFullError, match="60 tokens of text are waiting, and 100 may"):
            admission.check(41, 10)
        admission.check(40, 10)
    admission.check(41, 10)
    assert admission.tokens == 0


def test_work_of_any_size_is_let_in_when_nothing_waits():
    with Admission(100).admit(1000, 10):
        pass


def test_work_that_would_wait_for_too_long_is_refused_with_the_time_to_come_back():
    admission = Admission(10**6)
    admission.note_speed(100, 1.0)  # tokens a second
    with admission.admit(1000, 60):
        assert admission.expected_wait_s() == 10
        admission.check(1, 20)
        with pytest.raises(
            QueueFullError, match=r"takes about 10\.0 s: too long for .* 4 s"
        ) as why:
            admission.check(1, 4)
    assert why.value.retry_after_s == 8


def test_a_place_is_held_until_the_request_is_admitted():
    async def play():
        admission = Admission(100)
        reservation = admission.reserve(10)
        assert admission.tokens == 16
        with admission.admit(90, 10):
            assert admission.tokens == 90
            with pytest.raises(QueueFullError):
                admission.reserve(10)
        reservation.release()
        assert admission.tokens == 0

    asyncio.run(play())


def test_places_of_others_count():
    async def play():
        admission, reservations = Admission(40), []

        async def another():
            reservations.append(admission.reserve(10))

        for _ in range(2):
            await asyncio.create_task(another())
        with pytest.raises(QueueFullError, match="32 tokens of text are waiting, and 40 may"):
            admission.check(10, 10)
        for reservation in reservations:
            reservation.release()
        assert admission.tokens == 0

    asyncio.run(play())


def test_a_place_lapses_where_the_client_is_slow(monkeypatch):
    monkeypatch.setattr(longtail.service.engine.admission, "_RESERVATION_S", 0.0)

    async def play():
        admission = Admission(100)
        reservation = admission.reserve(10)
        while admission.tokens:  # noqa: ASYNC110  # a timer makes it hold
            await asyncio.sleep(0)
        await reservation.wait_for_parse_slot()  # it has no right to one any more, and needs none
        assert not admission._parse_slots.locked()

    asyncio.run(play())


def test_few_requests_are_read_at_a_time_in_the_order_of_their_coming():
    async def play():
        admission, order, begun = Admission(10**6), [], []

        async def one(number):
            reservation = admission.reserve(10)
            await reservation.wait_for_parse_slot()
            await reservation.wait_for_parse_slot()  # it has one already
            begun.append(number)
            await asyncio.sleep(0)
            with admission.admit(1, 10):
                order.append(number)
            reservation.release()

        tasks = [asyncio.create_task(one(number)) for number in range(10)]
        await asyncio.sleep(0)
        assert begun == [0, 1, 2, 3]
        await asyncio.gather(*tasks)
        assert order == list(range(10))
        assert admission.tokens == 0

    asyncio.run(play())


def test_bulk_work_waits_for_room_in_turn_and_never_takes_that_of_others():
    async def play():
        admission, order = Admission(100), []

        async def work(name, tokens, begun, may_end):
            async with admission.admit_when_room(tokens):
                order.append(name)
                begun.set()
                await may_end.wait()

        events = [(asyncio.Event(), asyncio.Event()) for _ in range(3)]
        tasks = [asyncio.create_task(work(name, 30, *events[i])) for i, name in enumerate("abc")]
        await events[0][0].wait()
        admission.check(100, 10)  # the half that bulk work may fill is not counted here
        events[0][1].set()
        await events[1][0].wait()
        assert order == ["a", "b"]
        events[1][1].set()
        events[2][1].set()
        await asyncio.gather(*tasks)
        assert order == ["a", "b", "c"]
        assert admission.tokens == 0

    asyncio.run(play())


def test_bulk_work_that_gives_up_while_it_waits_leaves_nothing_behind():
    async def play():
        admission = Admission(10)

        async def wait_for_ever():
            async with admission.admit_when_room(10):
                await asyncio.Event().wait()

        tasks = [asyncio.create_task(wait_for_ever()) for _ in range(3)]
        await asyncio.sleep(0)  # all have begun
        for task in reversed(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert admission.tokens == 0

    asyncio.run(play())


ORDINARY = {"text": "Duties on imports of olive oil"}


@pytest.fixture
def wordless(fake_predictor):
    """A model that, as one without an encoder, knows no token of texts without words."""

    class Wordless(fake_predictor):
        def prepare(self, batch, scorer=None):
            return [0 if "?" in text else len(text.split()) for text in batch.texts]

    return Wordless


def ask_predict(client):
    assert client.post("/v1/predict", json={"text": "???"}).status_code == 200


def ask_batch(client):
    content = b'{"text": "???"}\n'
    headers = {"content-type": "application/x-ndjson"}
    assert client.post("/v1/batch", content=content, headers=headers).status_code == 200


@pytest.mark.parametrize("ask", [ask_predict, ask_batch])
def test_a_first_text_without_a_known_token_keeps_nobody_out(
    open_client, make_loader, wordless, ask
):
    with open_client(make_loader(predictor_class=wordless)) as client:
        for _ in range(3):
            ask(client)
        answer = client.post("/v1/predict", json=ORDINARY)
        assert answer.status_code == 200, answer.text
        assert client.post("/v1/projects/longtail/suggest", data=ORDINARY).status_code == 200


def test_huge_requests_do_not_shut_out_others_before_they_are_read():
    async def play():
        admission = Admission(2**16)
        for _ in range(100):
            with admission.admit(10**6, 30):
                pass
        reservations = []

        async def another():
            reservations.append(admission.reserve(30))

        for _ in range(60):
            await asyncio.create_task(another())
        for reservation in reservations:
            reservation.release()

    asyncio.run(play())


def test_many_greedy_clients_leave_room_for_others_and_get_equal_shares():
    admission, taken = Admission(10_000), []
    with ExitStack() as stack:
        refused = 0
        while refused < 9:
            refused = 0
            for number in range(9):
                set_client(f"greedy {number}")
                try:
                    stack.enter_context(admission.admit(10, math.inf))
                except QueueFullError:
                    refused += 1
        taken = set(admission._interactive._taken_by.values())
        set_client("polite")
        stack.enter_context(admission.admit(10, math.inf))
    assert max(taken) - min(taken) <= 10
    assert 9 * min(taken) > 9000


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(longtail.service.engine.admission, "time", clock)
    return clock


@pytest.mark.usefixtures("clock")
def test_a_client_waits_for_as_much_of_others_as_it_has_itself():
    admission = Admission(10**6)
    admission.note_speed(100, 1.0)
    set_client("greedy")
    with admission.admit(5000, 1000), admission.admit(1000, 1000) as greedy_s:
        set_client("polite")
        with admission.admit(100, 10) as polite_s:
            assert (greedy_s, polite_s) == (50, 2)


@pytest.mark.usefixtures("clock")
def test_a_client_with_much_of_the_queue_gives_way_by_that_part_of_its_time_limit():
    """Where tokenising takes longer than the batches by which the speed is known."""
    admission = Admission(1000)
    set_client("greedy")
    with admission.admit(400, 30), admission.admit(100, 30) as greedy_s:
        set_client("polite")
        with admission.admit(10, 30) as polite_s:
            assert (greedy_s, polite_s) == (12.0, 0.6)


def test_a_client_is_served_in_the_order_of_its_coming_however_long_its_texts_are(clock):
    admission = Admission(100_000)
    admission.note_speed(1000, 1)
    sizes = np.random.default_rng(5).lognormal(6, 1.5, 300).astype(int) + 1
    waiting, turns = deque(), []
    with ExitStack() as stack:
        for size in sizes.tolist():
            clock.now += 0.01
            if len(waiting) == 8:
                waiting.popleft().close()
            one = stack.enter_context(ExitStack())
            turns.append(one.enter_context(admission.admit(size, 1000)))
            waiting.append(one)
        set_client("other")
        turn = one.enter_context(admission.admit(10, 1000))
    assert turns == sorted(turns)
    assert turn < min(turns[-8:])  # others still go before what waits


def test_so_many_run_and_no_more_and_some_are_kept_for_other_clients():
    slots = Slots(16, "batches")
    with ExitStack() as stack:
        set_client("greedy")
        for _ in range(13):
            slots.check()
            stack.enter_context(slots.one_more())
        with pytest.raises(QueueFullError, match="of this client"):
            slots.check()
        set_client("polite")
        slots.check()
        for _ in range(3):
            stack.enter_context(slots.one_more())
        with pytest.raises(QueueFullError, match="16 batches are running"):
            slots.check()
    slots.check()
