"""Projected Newton: the minimum of a convex loss, bounds among its parameters."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from longtail.training.calibration.blends import _Problem
from longtail.training.calibration.minimum import minimum


class Regression:
    """A logistic regression over made-up rows, with columns of very unlike size."""

    def __init__(self, seed: int, num_rows: int = 400, num_columns: int = 6) -> None:
        rng = np.random.default_rng(seed)
        self.rows = rng.normal(size=(num_rows, num_columns)) * 10.0 ** rng.integers(
            -2, 3, num_columns
        )
        unlike = self.rows[:, 0].std() * rng.normal(size=num_rows)
        self.rows[:, 1] = self.rows[:, 0] + 0.05 * unlike  # nearly the same direction
        self.targets = rng.random(num_rows)

    def loss(self, x):
        odds = self.rows @ x
        value = -(self.targets * odds + log_expit(-odds)).sum()
        return float(value), self.rows.T @ (expit(odds) - self.targets)

    def curvature(self, x):
        share = expit(self.rows @ x)
        return (self.rows.T * (share * (1 - share))) @ self.rows


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("bound", [-np.inf, 0.0, 0.3])
def test_no_other_method_finds_less_and_the_gradient_says_why(seed, bound):
    problem = Regression(seed)
    least = np.full(6, bound)
    least[0] = -np.inf
    found = minimum(problem.loss, problem.curvature, np.ones(6), least, 1e-12)
    value, gradient = problem.loss(found)
    assert (found >= least).all()
    scale = np.sqrt(np.diagonal(problem.curvature(found)))
    is_held = found <= least
    assert (gradient[is_held] >= -1e-6 * scale[is_held]).all()
    assert np.abs(gradient[~is_held] / scale[~is_held]).max(initial=0) < 1e-4
    bounds = [(None if each == -np.inf else each, None) for each in least]
    for start in (np.ones(6), found):
        other = minimize(problem.loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
        assert value <= other.fun * (1 + 1e-9)


def test_a_start_far_off_where_the_curvature_vanishes_is_left():
    problem = Regression(3)
    least = np.full(6, -np.inf)
    expected = minimum(problem.loss, problem.curvature, np.zeros(6), least, 1e-12)
    found = minimum(problem.loss, problem.curvature, np.full(6, 40.0), least, 1e-12)
    assert problem.loss(found)[0] == pytest.approx(problem.loss(expected)[0], rel=1e-9)


@pytest.mark.parametrize("num_knots", [1, 2, 5])
def test_the_curvature_of_a_blend_is_the_slope_of_its_gradient(num_knots):
    rng = np.random.default_rng(num_knots)
    num_pairs, num_terms = 300, 4
    problem = _Problem(
        evidence=np.column_stack([np.ones(num_pairs), rng.normal(size=(num_pairs, num_terms - 1))]),
        knots=rng.integers(0, num_knots, num_pairs),
        shares=rng.random(num_pairs),
        is_true=rng.random(num_pairs) < 0.3,
        weights=rng.random(num_pairs) * 3,
        num_knots=num_knots,
        start=rng.normal(size=num_terms),
        smoothness=4.0,
        ridge=rng.random((num_knots, num_terms)),
    )
    above_is_itself = problem.knots == num_knots - 1
    problem = replace(problem, shares=np.where(above_is_itself, 0.0, problem.shares))
    at = rng.normal(size=num_knots * num_terms)
    matrix = problem.curvature(at)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-9)
    step = 1e-5
    for place in range(len(at)):
        one = step * (np.arange(len(at)) == place)
        slope = (problem.loss(at + one)[1] - problem.loss(at - one)[1]) / (2 * step)
        np.testing.assert_allclose(matrix[place], slope, rtol=1e-5, atol=1e-6)
