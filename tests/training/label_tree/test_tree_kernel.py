"""The compiled fit's own loops against numpy and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from longtail.training.label_tree import cpu_kernel as tree_kernel
from longtail.training.label_tree import newton_kernels
from longtail.training.label_tree.newton_kernels import Tiles

ROWS = 64


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.data())
def test_the_value_of_a_place_is_that_of_a_sorted_array(values, data) -> None:
    place = data.draw(st.integers(0, len(values) - 1))
    found = tree_kernel._in_order(np.array(values, dtype=float), place)
    assert found == np.sort(values)[place]


@pytest.mark.parametrize("num_left", range(7))
def test_a_cut_takes_the_lowest_and_of_equal_ones_the_first(num_left: int) -> None:
    scores = np.array([1.0, 0.0, 1.0, -2.0, 1.0, 3.0])
    goes_right = np.zeros(6, dtype=bool)
    tree_kernel._cut(scores, num_left, 6, goes_right)
    lowest = np.argsort(scores, kind="stable")[:num_left]
    assert set(np.flatnonzero(~goes_right)) == set(lowest)


def test_a_cut_leaves_room_on_both_sides() -> None:
    goes_right = np.zeros(6, dtype=bool)
    for num_left, kept in ((0, 2), (6, 4), (3, 3)):
        tree_kernel._cut(np.arange(6.0), num_left, 4, goes_right)
        assert (~goes_right).sum() == kept


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4])
def test_the_logistic_function_and_its_derivatives_are_right(scale: float) -> None:
    rng = np.random.default_rng(0)
    scores = (scale * rng.standard_normal(ROWS)).astype(np.float32)
    totals = rng.integers(0, 4, ROWS).astype(np.float32)
    right = np.floor(totals * rng.random(ROWS)).astype(np.float32)
    residuals, curvatures = np.empty_like(scores), np.empty_like(scores)
    value = newton_kernels._logistic(scores, totals, right, residuals, curvatures)
    s, t, r = (each.astype(float) for each in (scores, totals, right))
    wanted = r * log_expit(s) + (t - r) * log_expit(-s)
    assert value == pytest.approx(wanted.sum(), rel=1e-6)
    np.testing.assert_allclose(residuals, r - t * expit(s), atol=1e-5)
    np.testing.assert_allclose(curvatures, t * expit(s) * expit(-s), atol=1e-5)


@pytest.mark.parametrize(("num_tiles", "num_features"), [(1, 1), (1, 5), (3, 9), (2, 17)])
def test_an_ascent_reaches_the_optimum_from_any_hessian(num_tiles, num_features) -> None:
    tiles, x = tiles_of(num_tiles, num_features)
    totals, right = (each.ravel().astype(float) for each in (tiles.totals, tiles.right))

    def loss(weights: np.ndarray) -> float:
        scores = x @ weights
        fit = right @ log_expit(scores) + (totals - right) @ log_expit(-scores)
        return -fit + 0.3 * weights @ weights

    best = minimize(loss, np.zeros(num_features), options={"gtol": 1e-6})
    for factor in (np.zeros((num_features,) * 2), 5.0 * np.eye(num_features)):
        weights = np.zeros(num_features)
        value = tree_kernel._ascend(tiles, 0.3, 1e-7, weights, factor)
        assert loss(weights) == pytest.approx(best.fun, abs=1e-4)
        assert value == pytest.approx(0.3 * weights @ weights - best.fun, abs=1e-3)


def test_an_ascent_ends_where_rounding_hides_the_optimum() -> None:
    tiles, _ = tiles_of(4, 3, scale=1e4)
    weights = np.zeros(3)
    tree_kernel._ascend(tiles, 1e-12, 0.0, weights, np.zeros((3, 3)))
    assert np.isfinite(weights).all()


def tiles_of(num_tiles: int, num_features: int, scale: float = 1.0) -> tuple[Tiles, np.ndarray]:
    """Random rows in tiles, and one below the other."""
    rng = np.random.default_rng(num_features)
    shape = (num_tiles, num_features, ROWS)
    features = (scale * rng.standard_normal(shape)).astype(np.float32)
    totals = rng.integers(0, 3, (num_tiles, ROWS)).astype(np.float32)
    right = np.floor(totals * rng.random(totals.shape) * 1.5).clip(max=totals).astype(np.float32)
    tiles = Tiles(features, totals, right, np.empty_like(totals), np.empty_like(totals))
    return tiles, features.transpose(0, 2, 1).reshape(-1, num_features).astype(float)
