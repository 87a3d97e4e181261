"""The alias table against the probabilities it was made from."""

import numpy as np
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import chisquare

from longtail.training.learning.distributions import AliasTable


def implied(table: AliasTable) -> np.ndarray:
    keep = table.keep.double().numpy()
    shares = keep.copy()
    np.add.at(shares, table.other.numpy(), 1 - keep)
    return shares / len(keep)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60).filter(any))
@example([0, 15, 14, 349, 350, 343])  # two labels need what two can give, but for a bit
def test_the_cells_hold_exactly_the_probabilities(weights):
    weights = np.array(weights, dtype=np.float64)
    table = AliasTable.of(weights, "cpu")
    np.testing.assert_allclose(implied(table), weights / weights.sum(), atol=1e-7)


def test_draws_follow_the_probabilities_and_never_have_none():
    weights = np.array([5.0, 0.0, 1.0, 3.0, 0.5])
    table = AliasTable.of(weights, "cpu")
    drawn = table.sample(20_000, torch.Generator().manual_seed(1))
    counts = np.bincount(drawn.numpy(), minlength=5)
    assert counts[1] == 0
    kept = weights > 0
    assert chisquare(counts[kept], 20_000 * weights[kept] / weights.sum()).pvalue > 0.01
