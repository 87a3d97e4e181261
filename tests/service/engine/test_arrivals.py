"""How much comes, as it is remembered, and how large batches must be for it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.service.engine.traffic import ArrivalRate, least_batch


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
