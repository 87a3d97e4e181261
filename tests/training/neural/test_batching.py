"""Which documents a step learns from: each once an epoch, within bounds, the same when resumed."""

from itertools import chain

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longtail.training.neural.batching import BatchPlan

some_lengths = st.lists(st.integers(1, 40), min_size=1, max_size=150).map(np.array)


def plan_of(lengths, *, epochs=3, batch_size=8, batch_tokens=None, seed=(5, 1), max_steps=None):
    return BatchPlan(np.asarray(lengths), epochs, batch_size, batch_tokens, seed, max_steps)


def padded(plan: BatchPlan, rows: np.ndarray) -> int:
    return len(rows) * int(plan.lengths[rows].max())


def flat(batches) -> list[list[int]]:
    return [rows.tolist() for rows in batches]


@given(some_lengths, st.integers(1, 9), st.sampled_from([None, 40, 100, 5000]))
def test_every_epoch_has_each_document_once_within_both_bounds(lengths, size, tokens):
    plan = plan_of(lengths, batch_size=size, batch_tokens=tokens)
    for number in range(plan.epochs):
        batches = plan.epoch(number)
        assert sorted(chain.from_iterable(flat(batches))) == list(range(len(lengths)))
        assert all(0 < len(rows) <= size for rows in batches)
        if tokens is not None:
            assert all(padded(plan, rows) <= tokens for rows in batches)


@given(some_lengths, st.sampled_from([None, 60]), st.data())
def test_batches_from_any_step_on_are_those_of_the_whole(lengths, tokens, data):
    plan = plan_of(lengths, batch_tokens=tokens)
    whole = flat(chain.from_iterable(plan.epoch(number) for number in range(plan.epochs)))
    assert (plan.num_steps, plan.num_documents) == (len(whole), 3 * len(lengths))
    first = data.draw(st.integers(0, len(whole)))
    assert flat(plan.batches(first)) == whole[first:]
    assert plan.num_seen(first) == sum(map(len, whole[:first]))


@given(some_lengths, st.sampled_from([None, 60]), st.data())
def test_at_most_so_many_steps_are_the_first_of_the_epochs(lengths, tokens, data):
    whole = plan_of(lengths, batch_tokens=tokens)
    most = data.draw(st.integers(1, whole.num_steps + 3))
    plan = plan_of(lengths, batch_tokens=tokens, max_steps=most)
    taken = min(most, whole.num_steps)
    first = data.draw(st.integers(0, taken))
    assert plan.num_steps == taken
    assert plan.num_documents == plan.num_seen(taken) == whole.num_seen(taken)
    assert flat(plan.batches(first)) == flat(whole.batches(first))[: taken - first]


def test_a_token_bound_takes_documents_of_like_length_and_less_padding():
    lengths = np.random.default_rng(0).integers(5, 100, 3000)
    random = plan_of(lengths, epochs=1, batch_size=16)
    sorted_ = plan_of(lengths, epochs=1, batch_size=16, batch_tokens=16 * 100)
    waste = [
        sum(padded(plan, rows) for rows in plan.epoch(0)) / lengths.sum() - 1
        for plan in (random, sorted_)
    ]
    assert waste[0] > 0.5 and waste[1] < 0.03
    shortest_first = [int(lengths[rows].max()) for rows in sorted_.epoch(0)]
    assert shortest_first != sorted(shortest_first)
