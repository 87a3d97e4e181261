"""The compiled fit of single nodes against numpy and scipy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from longtail.training.label_tree.levels import NodeArrays, fit_nodes


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=40))
def test_half_of_the_labels_go_left_the_lowest_and_of_equal_ones_the_first(values):
    sums = np.array(values, dtype=float)
    nodes = nodes_of(np.zeros((0, 1)), np.zeros((0, len(sums))), np.column_stack([sums, sums]))
    goes_right = fit_node(nodes, 64, most_rounds=0)[1]
    if sums.min() < sums.max():  # or else there is no direction
        lowest = np.argsort(sums, kind="stable")[: len(sums) // 2]
        assert set(np.flatnonzero(~goes_right)) == set(lowest)


@pytest.mark.parametrize(("num_rows", "num_features"), [(1, 1), (60, 4), (150, 8), (128, 16)])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4])
def test_the_weights_of_two_labels_are_those_of_the_optimum(num_rows, num_features, scale):
    x, counts = rows_of(num_rows, num_features, scale)
    value, goes_right, weights = fit_node(nodes_of(x, counts), 2, strength=0.3)
    right = counts @ goes_right.astype(float)
    augmented = np.column_stack([x, np.ones(num_rows)])

    def log_likelihood(weights: np.ndarray) -> float:
        scores = augmented @ weights
        return right @ log_expit(scores) + (counts.sum(1) - right) @ log_expit(-scores)

    def loss(weights: np.ndarray) -> float:
        return 0.3 * weights @ weights - log_likelihood(weights)

    best = minimize(loss, weights, options={"gtol": 1e-6})
    assert loss(weights) == pytest.approx(best.fun, abs=1e-6 * float(counts.sum()), rel=1e-6)
    assert value == pytest.approx(log_likelihood(weights), abs=1e-5 * float(counts.sum()))


def test_two_labels_with_very_many_rows_are_fitted_to_all_of_them():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8193, 4)).astype(np.float32)
    is_second = rng.random(8193) < expit(x @ np.array([1.0, -0.5, 0.3, 0.0]) + 0.4)
    counts = np.column_stack([~is_second, is_second]).astype(float)
    value, goes_right, weights = fit_node(nodes_of(x, counts), 2, strength=1.0)
    right, augmented = counts @ goes_right.astype(float), np.column_stack([x, np.ones(len(x))])

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        scores = augmented @ weights
        signs = np.where(right, scores, -scores)
        gradient = augmented.T @ (right - expit(scores)) - 2 * weights
        return weights @ weights - log_expit(signs).sum(), -gradient

    options = {"ftol": 1e-15, "gtol": 1e-9}
    best = minimize(loss, np.zeros(5), jac=True, method="L-BFGS-B", options=options)
    assert loss(weights)[0] == pytest.approx(best.fun, abs=1e-6 * len(x))
    assert value == pytest.approx(weights @ weights - loss(weights)[0], abs=1e-6 * len(x))


def rows_of(num_rows: int, num_features: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Random features, and how often each row carries either of two labels."""
    rng = np.random.default_rng(num_features)
    x = (scale * rng.standard_normal((num_rows, num_features))).astype(np.float32)
    return x, rng.integers(0, 3, (num_rows, 2)).astype(float)


def nodes_of(x: np.ndarray, weights: np.ndarray, sums: np.ndarray | None = None) -> NodeArrays:
    """One node to which every row brings a pair with each label, of such weights."""
    augmented = np.column_stack([x, np.ones(len(x))]).astype(np.float32)
    num_rows, num_labels = weights.shape
    return NodeArrays(
        features=augmented,
        row_starts=np.array([0, num_rows]),
        row_documents=np.arange(num_rows),
        pair_starts=np.arange(num_rows + 1) * num_labels,
        pair_labels=np.tile(np.arange(num_labels), num_rows),
        pair_weights=weights.astype(np.float32).ravel(),
        label_starts=np.array([0, num_labels]),
        label_sums=weights.T.astype(float) @ augmented if sums is None else sums,
    )


def fit_node(
    nodes: NodeArrays, capacity: int, strength: float = 0.1, most_rounds: int = 100
) -> tuple[float, np.ndarray, np.ndarray]:
    """Eq. 8, which labels go right, and the weights."""
    weights, value = np.zeros((1, nodes.label_sums.shape[1])), np.zeros(1)
    goes_right = np.zeros(len(nodes.label_sums), dtype=bool)
    fit_nodes(nodes, capacity, strength, most_rounds, weights, goes_right, value)
    return float(value[0]), goes_right, weights[0]
