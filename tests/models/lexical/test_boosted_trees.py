"""Boosted trees as arrays, against scikit-learn's own, and arrays that are no trees."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier

from longtail.models.lexical.boosted_trees import LEAF, BoostedTrees
from longtail.training.lexical.fit import _exported

# One tree of a decision and two leaves, and one of a leaf alone.
STUMPS = BoostedTrees(
    roots=np.array([0, 3]),
    features=np.array([1, LEAF, LEAF, LEAF]),
    thresholds=np.array([0.5, 0.0, 0.0, 0.0]),
    lefts=np.array([1, 0, 0, 0]),
    rights=np.array([2, 0, 0, 0]),
    values=np.array([0.0, -1.0, 2.0, 0.25]),
    baseline=np.array([-3.0]),
)


def test_rows_at_the_threshold_go_left():
    rows = np.array([[9, 0.5], [9, np.nextafter(np.float32(0.5), 1)], [0, -7]], dtype=np.float32)
    assert STUMPS.log_odds(rows).tolist() == [-3.75, -0.75, -3.75]
    assert STUMPS.log_odds(rows[:0]).shape == (0,)


@settings(max_examples=8)
@given(
    seed=st.integers(0, 99),
    num_features=st.integers(1, 4),
    num_leaves=st.integers(2, 9),
    is_coarse=st.booleans(),
)
def test_log_odds_are_those_of_scikit_learn(seed, num_features, num_leaves, is_coarse):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(300, num_features)).astype(np.float32)
    if is_coarse:
        rows = rows.round()
    is_true = rows.sum(axis=1) + rng.normal(size=300) > 0
    model = HistGradientBoostingClassifier(
        max_iter=8, max_leaf_nodes=num_leaves, min_samples_leaf=5, early_stopping=False
    ).fit(rows, is_true)
    trees = _exported(model)
    trees.check(num_features)
    fresh = np.vstack([rows, 10 * rng.normal(size=(300, num_features)).astype(np.float32)])
    np.testing.assert_allclose(
        trees.log_odds(fresh), model.decision_function(fresh), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    "broken",
    [
        {"features": np.array([2, LEAF, LEAF, LEAF])},
        {"roots": np.array([0, 4])},
        {"lefts": np.array([0, 0, 0, 0])},  # round and round
        {"rights": np.array([4, 0, 0, 0])},
        {"values": np.array([0.0, np.nan, 2.0, 0.25])},
        {"thresholds": np.array([np.nan, 0.0, 0.0, 0.0])},
        {"baseline": np.array([np.nan])},
    ],
)
def test_nodes_that_lead_nowhere_are_refused(broken):
    with pytest.raises(ValueError, match="boosted trees: a node of the 4 leads nowhere"):
        replace(STUMPS, **broken).check(2)
