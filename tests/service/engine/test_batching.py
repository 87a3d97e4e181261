"""Which texts are computed together, and in which order."""

import math
import sys
from concurrent.futures import CancelledError
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.models.options import RankingOptions
from longtail.service.engine import batching
from longtail.service.engine.admission import Admission, Priority
from longtail.service.engine.batching import Item, Job, WorkQueue, of_like_length
from longtail.service.engine.queries import LabelSets, options_for
from longtail.service.engine.traffic import ArrivalRate, MovingAverage, least_batch
from longtail.service.schemas.requests import Options


@dataclass(frozen=True)
class Predictor:
    batch_tokens: int = 100
    padding_cost: float = 1.0

    @property
    def scorers(self) -> Any:
        return SimpleNamespace(needs_encoder=lambda scorer: scorer != "sparse")


@dataclass(frozen=True)
class Model:
    predictor: Predictor


MODEL = Model(Predictor())


def job_of(*texts, priority=Priority.INTERACTIVE, model=MODEL, scorer="retrieval"):
    return Job(model, texts, RankingOptions(5, scorer), priority, on_done=lambda job: None)


def waiting(queue, *lengths, **options):
    """Let a job wait whose texts have these numbers of tokens."""
    job = job_of(*("x" for _ in lengths), **options)
    queue.add_items(job, [Item(job, i, None, tokens) for i, tokens in enumerate(lengths)])
    return job


def lengths_of(batch):
    return [item.tokens for item in batch]


PADDING_COSTS = st.sampled_from([0.0, 0.25, 1.0])


def cost_of(run, padding_cost):
    return sum(run) + padding_cost * (max(run) * len(run) - sum(run))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.integers(1, 200), PADDING_COSTS)
def test_a_batch_has_the_first_text_and_never_costs_more_than_allowed(lengths, most, padding):
    items = [Item(job_of("x"), i, None, tokens) for i, tokens in enumerate(lengths)]
    batch = of_like_length(items, most, padding)
    assert items[0] in batch
    assert len(batch) == 1 or cost_of(lengths_of(batch), padding) <= most


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(1, 200), PADDING_COSTS)
def test_of_the_longest_runs_with_the_first_text_the_batch_costs_least_a_token(
    lengths, most, padding
):
    def cost_of_token(run):
        return (cost_of(run, padding) + batching.BATCH_COST) / sum(run)

    items = [Item(job_of("x"), i, None, tokens) for i, tokens in enumerate(lengths)]
    rising = sorted(items, key=lambda item: item.tokens)
    costs = []
    for end in range(1, len(items) + 1):
        runs = [rising[start:end] for start in range(end)]
        fits = [run for run in runs if len(run) == 1 or cost_of(lengths_of(run), padding) <= most]
        if items[0] in fits[0]:
            costs.append(cost_of_token(lengths_of(fits[0])))
    batch = of_like_length(items, most, padding)
    assert cost_of_token(lengths_of(batch)) == min(costs, default=cost_of_token([lengths[0]]))


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def queue_with(speed, num_workers=2, max_batch_tokens=1000):
    """Return a queue whose workers compute at this speed, and its clock."""
    clock = Clock()
    queue = WorkQueue(max_batch_tokens, lambda: speed, clock=clock)
    for _ in range(num_workers - 1):
        queue.add_worker()
    return queue, clock


def test_where_little_comes_what_waits_is_shared_among_the_workers():
    queue, clock = queue_with(speed=1000)
    waiting(queue, *[10] * 8)
    clock.now += 60  # long ago
    assert lengths_of(queue.next_work()) == [10] * 4


def with_deadline(queue, clock, seconds, *lengths, turn_s=0.0, **options):
    """Let a job wait that is of use for so many seconds."""
    job = job_of(*("x" for _ in lengths), **options)
    job.deadline = clock.now + seconds
    job.urgency = job.deadline + turn_s
    queue.add_items(job, [Item(job, i, None, tokens) for i, tokens in enumerate(lengths)])
    job.items = list(queue._items[job.priority])[-len(lengths) :]
    return job


def test_the_earliest_deadline_goes_first():
    queue, clock = queue_with(speed=1000, max_batch_tokens=10)
    jobs = [with_deadline(queue, clock, seconds, 10) for seconds in (30, 5, 30, 1)]
    order = [queue.next_work()[0].job for _ in jobs]
    assert order == [jobs[3], jobs[1], jobs[0], jobs[2]]


def test_clients_take_turns_however_much_one_of_them_asks_for():
    queue, clock = queue_with(speed=1000, max_batch_tokens=10)
    greedy = [with_deadline(queue, clock, 30, 10, turn_s=0.01 * n) for n in range(4)]
    clock.now += 0.015
    polite = with_deadline(queue, clock, 30, 10)
    order = [queue.next_work()[0].job for _ in range(5)]
    assert order == [*greedy[:2], polite, *greedy[2:]]


def test_clients_take_turns_at_the_tokeniser():
    queue, clock = queue_with(speed=1000, max_batch_tokens=10)
    jobs = [job_of("x" * 2**16) for _ in range(3)]
    for job, turn_s in zip(jobs, (0, 5, 0), strict=True):
        job.urgency = clock.now + 30 + turn_s
        queue.add(job)
    assert [queue.next_jobs() for _ in jobs] == [[jobs[0]], [jobs[2]], [jobs[1]]]


def failed(job):
    return None if job.error is None else type(job.error).__name__


def test_what_would_come_too_late_is_refused_while_others_wait():
    queue, clock = queue_with(speed=100, max_batch_tokens=10)
    late = with_deadline(queue, clock, 0.4, 10, 10)  # 40 + 10 tokens take half a second
    good = with_deadline(queue, clock, 0.6, 10)
    assert queue.next_work()[0].job is good
    assert (failed(late), failed(good)) == ("DeadlineError", None)
    assert queue.drain() == set()


def test_what_waits_alone_is_tried_even_if_it_seems_too_late():
    """Else a speed that was once misjudged would never be found out."""
    queue, clock = queue_with(speed=100, max_batch_tokens=10)
    alone = with_deadline(queue, clock, 0.4, 10)
    assert queue.next_work()[0].job is alone
    assert failed(alone) is None


def test_texts_of_like_length_go_together():
    queue = WorkQueue(100)
    waiting(queue, 20, 90, 21, 5, 19, 80, 20)
    assert sorted(lengths_of(queue.next_work())) == [19, 20, 20, 21]
    assert lengths_of(queue.next_work()) == [90]
    assert lengths_of(queue.next_work()) == [5]
    assert lengths_of(queue.next_work()) == [80]


def test_models_and_sparse_scorers_never_share_a_batch():
    queue = WorkQueue(None)  # as much as the model says
    waiting(queue, 10, 10)
    waiting(queue, 10, scorer="sparse")
    waiting(queue, 10, model=Model(Predictor()))
    waiting(queue, 10)
    assert [len(queue.next_work()) for _ in range(3)] == [3, 1, 1]


def test_interactive_texts_go_first_but_bulk_ones_get_every_eighth_turn():
    queue = WorkQueue(10)
    bulk = waiting(queue, *[10] * 3, priority=Priority.BULK)
    waiting(queue, *[10] * 16)
    order = [queue.next_work()[0].job is bulk for _ in range(19)]
    assert [i for i, is_bulk in enumerate(order) if is_bulk] == [7, 15, 18]


def test_a_job_that_is_dropped_never_begins():
    queue = WorkQueue(100)
    gone, stays = job_of("x"), waiting(queue, 10)
    queue.add(gone)
    tokenised = waiting(queue, 10, 10)
    for job in (gone, tokenised):
        queue.drop(job)
    queue.add_items(gone, [Item(gone, 0, None, 10)])  # it was dropped while it was tokenised
    assert [item.job for item in queue.next_work()] == [stays]
    assert queue.drain() == set()


def test_a_closed_queue_gives_nothing_and_keeps_nothing():
    queue = WorkQueue(100)
    queue.add(untokenised := job_of("x"))
    tokenised = waiting(queue, 10)
    calls = [queue.call(lambda: None)]
    queue.close()
    calls.append(queue.call(lambda: None))
    assert queue.next_jobs() == []
    assert queue.next_work() is None
    assert queue.drain() == {untokenised, tokenised}
    for call in calls:
        with pytest.raises(CancelledError):
            call.result()


@given(st.lists(st.tuples(st.integers(1, 100), st.floats(0, 5)), max_size=20))
def test_it_is_a_sum_of_what_came_each_fading(comings):
    arrivals, now = ArrivalRate(), 0.0
    moments = []
    for tokens, later in comings:
        now += later
        moments.append((tokens, now))
        arrivals.add(tokens, now)
    expected = sum(tokens / 2 * math.exp((at - now - 1) / 2) for tokens, at in moments)
    assert arrivals.at(now + 1) == pytest.approx(expected)


@given(st.floats(0, 1e5), st.floats(1, 1e5), st.integers(1, 8))
def test_batches_of_that_size_bear_a_tenth_more_than_comes(rate, speed, num_workers):
    least = least_batch(rate, speed, num_workers, 40)
    if least == math.inf:
        assert 1.1 * rate >= num_workers * speed
    else:
        borne = num_workers * speed * least / (least + 40)
        assert borne == pytest.approx(1.1 * rate, abs=1e-6)


SUBNORMAL = sys.float_info.min / 2**20
SAMPLES = st.lists(
    st.floats(allow_nan=True, allow_infinity=True)
    | st.sampled_from([0.0, -0.0, SUBNORMAL, -SUBNORMAL, sys.float_info.max, math.inf, math.nan])
)


def average(**changes):
    return MovingAverage(**{"decay": 0.5, "lower": 1.0, "upper": 100.0} | changes)


@given(SAMPLES)
def test_no_sequence_drives_the_value_out_of_its_bounds(samples):
    found = average()
    for sample in samples:
        found.add(sample)
        assert found.value is None or 1.0 <= found.value <= 100.0


@given(SAMPLES, st.floats(1.0, 100.0))
def test_after_any_sequence_the_truth_is_learned_again_within_sixty_samples(samples, truth):
    found = average()
    for sample in [*samples, *[truth] * 60]:
        found.add(sample)
    assert found.value == pytest.approx(truth)


SPEEDS = st.lists(
    st.tuples(
        st.integers(0, 10**9) | st.sampled_from([0, 1]),
        st.floats() | st.sampled_from([0.0, -1.0, SUBNORMAL, math.inf, math.nan, 1e300]),
    )
)


@given(SPEEDS, st.lists(st.integers(0, 10**9), max_size=20))
def test_nothing_that_traffic_teaches_keeps_an_ordinary_request_out(speeds, sizes):
    admission = Admission(2**16)
    for tokens, seconds in speeds:
        admission.note_speed(tokens, seconds)
    for size in sizes:
        with admission.admit(size, 30):
            pass
    assert admission.expected_wait_s() == 0
    admission.check(16, 30)
    with admission.admit(16, 30):
        assert 0 <= admission.expected_wait_s() < math.inf
        assert 1 <= admission._size.value <= 2**16 / 64


@pytest.mark.parametrize(("given", "k"), [({}, 3), ({"k": 5}, 5), ({"k": 2}, 2)])
def test_only_a_k_that_nobody_asked_for_is_at_most_the_number_of_labels(given, k):
    class Model:
        scorers = SimpleNamespace(default="sparse")
        catalogue = range(3)

    assert options_for(Options(**given), Model(), LabelSets()) == RankingOptions(k, "sparse")
