"""What the service learns from traffic stays within bounds, whatever the traffic is."""

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.service.engine.admission import Admission
from longtail.service.engine.traffic import MovingAverage

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


# ---- what admission learns ----

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
