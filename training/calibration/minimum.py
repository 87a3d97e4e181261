"""The minimum of a convex loss of few parameters: Newton within bounds, on one thread.

Where parameters are few and pairs are many, a step costs little more with the curvature than
without it, and some ten steps do what a method of gradients alone needs hundreds for.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float64
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls
from scipy.special import expit, log_expit
from threadpoolctl import threadpool_limits

Parameters = Float64[np.ndarray, "parameter"]
Loss = Callable[[Parameters], tuple[float, Parameters]]
Curvature = Callable[[Parameters], Float64[np.ndarray, "parameter parameter"]]

_MAX_STEPS = 200
_SUFFICIENT = 1e-4
"""Share of the decrease predicted by the gradient that a step must reach (Armijo)."""
_FLOOR = 1e-10
"""Added to the curvature's diagonal, as a share of its largest entry: so that it has a root."""
_MIN_DAMPING, _MAX_FINAL_DAMPING, _GIVE_UP_DAMPING = 1e-6, 1e-3, 1e16
"""The smallest above 0; the largest of a last step; from which on the loss can't be lowered."""


def logistic_regression(
    columns: Float64[np.ndarray, "pair parameter"],
    targets: Bool[np.ndarray, pair] | Float64[np.ndarray, pair],
    start: Parameters,
    least: Parameters,
    *,
    weights: Float64[np.ndarray, pair] | float = 1.0,
    offset: Float64[np.ndarray, pair] | float = 0.0,
    penalty: Float64[np.ndarray, "parameter parameter"] | None = None,
) -> Parameters:
    """Return the parameters by which offset + columns @ parameters are the likeliest log-odds.

    Args:
        columns: Columns of each pair.
        targets: Whether it is right, or the share of it that is.
        start: As for `minimum`.
        least: As there.
        weights: Pairs that each stands for.
        offset: Log-odds with all parameters 0.
        penalty: P, of the ridge parameters @ P @ parameters / 2; None: 0.
    """
    ridge = np.zeros((len(start), len(start))) if penalty is None else penalty

    def loss(parameters: Parameters) -> tuple[float, Parameters]:
        log_odds = offset + columns @ parameters
        error = weights * (expit(log_odds) - targets)
        cost = -(weights * (targets * log_odds + log_expit(-log_odds))).sum()
        cost += parameters @ ridge @ parameters / 2
        return float(cost), columns.T @ error + ridge @ parameters

    def curvature(parameters: Parameters) -> Float64[np.ndarray, "parameter parameter"]:
        shares = expit(offset + columns @ parameters)
        matrix: Float64[np.ndarray, "parameter parameter"] = (
            columns.T * (weights * shares * (1 - shares))
        ) @ columns + ridge
        return matrix

    return minimum(loss, curvature, start, least, tolerance=1e-12)


def minimum(
    loss: Loss, curvature: Curvature, start: Parameters, least: Parameters, tolerance: float
) -> Parameters:
    """Return the parameters of the least loss.

    A step that does not lower the loss is tried again with the curvature's diagonal added ever
    more often (Levenberg 1944), until it is a short one along the gradient; so a parameter that
    meets its bound on the way, or a place without curvature, ends nothing.
    Matrices are tall and narrow: threads of BLAS would mostly wait for each other, and the sums of
    two have other bits than those of one.

    Args:
        loss: Value and gradient.
        curvature: Matrix of second derivatives; nowhere negative.
        start: Where to begin.
        least: Lower bound of each parameter; -inf: it has no bound.
        tolerance: Ends the search when the loss falls by a smaller share.
    """
    with threadpool_limits(1, user_api="blas"):
        found: Parameters = np.maximum(start, least)
        value, gradient = loss(found)
        scales, damping = np.zeros(len(found)), 0.0
        for _ in range(_MAX_STEPS):
            matrix = curvature(found)
            scales = np.maximum(scales, np.diagonal(matrix))
            while True:
                step = _damped_step(matrix, gradient, found, least, damping * _above_zero(scales))
                tried = np.maximum(found + step, least)
                expected = float(gradient @ (tried - found))
                if damping <= _MAX_FINAL_DAMPING and -expected <= tolerance * max(abs(value), 1.0):
                    return found
                new_value, new_gradient = loss(tried)
                if new_value <= value + _SUFFICIENT * min(expected, 0.0):
                    break
                damping = max(_MIN_DAMPING, 10 * damping)
                if damping > _GIVE_UP_DAMPING:
                    return found
            fall, scale = value - new_value, max(abs(value), abs(new_value), 1.0)
            found, value, gradient = tried, new_value, new_gradient
            if fall <= tolerance * scale and damping <= _MAX_FINAL_DAMPING:
                return found
            damping = 0.0 if damping <= _MIN_DAMPING else damping / 100
    return found


def _damped_step(
    matrix: Float64[np.ndarray, "parameter parameter"],
    gradient: Parameters,
    found: Parameters,
    least: Parameters,
    damping: Parameters,
) -> Parameters:
    """Return the step to the minimum of the quadratic model within the bounds.

    With H = R^T R and the step s, that is the least |R s + R^-T g|: non-negative least squares in
    how far a parameter is above its bound. One without a bound is the difference of two.
    """
    floor = _FLOOR * max(1.0, float(np.abs(np.diagonal(matrix)).max()))
    root = cholesky(matrix + np.diag(np.maximum(damping, floor)))
    is_bounded = np.isfinite(least)
    above = np.where(is_bounded, found - least, 0.0)
    target = root @ above - solve_triangular(root, gradient, trans="T")
    columns = np.hstack([root, -root[:, ~is_bounded]])
    solved = nnls(columns, target, maxiter=100 * columns.shape[1])[0]
    size = len(found)
    solved[:size][~is_bounded] -= solved[size:]
    step: Parameters = solved[:size] - above
    return step


def _above_zero(scales: Parameters) -> Parameters:
    """Return the scales, those of parameters that never had a curvature as large as the others."""
    return np.where(scales > 0, scales, scales.max(initial=0) or 1.0)
