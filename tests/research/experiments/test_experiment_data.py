"""What an experiment learns from and is measured on."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from research.experiments.data import thirds


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30))
def test_thirds_divide_the_labels_and_no_frequency(counts):
    counts = np.array(counts)
    parts = thirds(counts)
    assert (sum(parts[name].astype(int) for name in ("Head", "Torso", "Tail")) == 1).all()
    for name, is_in in parts.items():
        assert name == "Full" or not set(counts[is_in]) & set(counts[~is_in])
