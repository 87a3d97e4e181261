"""The minimum of a smooth loss of few parameters: L-BFGS-B (Byrd et al. 1995), on one thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float64
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

_MAX_STEPS = 1000


def minimum(
    loss: Callable[[Float64[np.ndarray, parameter]], tuple[float, Float64[np.ndarray, parameter]]],
    start: Float64[np.ndarray, parameter],
    bounds: Sequence[tuple[float | None, float | None]],
    tolerance: float,
) -> Float64[np.ndarray, parameter]:
    """Return the parameters of the least loss.

    Matrices are tall and narrow: threads of BLAS would mostly wait for each other, and the sums of
    two have other bits than those of one.

    Args:
        loss: Value and gradient.
        start: Where to begin.
        bounds: Of each parameter, from below and above; None: there is none.
        tolerance: Ends the search when the loss falls by a smaller share.
    """
    options = {"maxiter": _MAX_STEPS, "ftol": tolerance}
    with threadpool_limits(1, user_api="blas"):
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    parameters: Float64[np.ndarray, parameter] = found.x
    return parameters
