"""Wilson's intervals of shares (Wilson 1927), also where a document counts several times."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64
from scipy.special import ndtri

LEVEL = 0.95
"""Of all intervals."""


def wilson_bounds(
    part: Float64[np.ndarray, "*shape"] | Int64[np.ndarray, "*shape"],
    whole: Float64[np.ndarray, "*shape"] | Int64[np.ndarray, "*shape"],
) -> tuple[Float64[np.ndarray, "*shape"], Float64[np.ndarray, "*shape"]]:
    """Return the bounds of Wilson's 95 % interval of shares; 0 and 1 where the whole is 0.

    Args:
        part: How many have a property.
        whole: Of how many.
    """
    z2 = float(ndtri((1 + LEVEL) / 2)) ** 2
    size = np.maximum(whole, 1e-12)
    share = part / size
    middle = (share + z2 / (2 * size)) / (1 + z2 / size)
    spread = np.sqrt(z2 * share * (1 - share) / size + (z2 / (2 * size)) ** 2) / (1 + z2 / size)
    return np.maximum(middle - spread, 0.0), np.minimum(middle + spread, 1.0)


def clustered_bounds(
    part: Float64[np.ndarray, document], whole: Float64[np.ndarray, document]
) -> tuple[float, float]:
    """Return the bounds of the 95 % interval of a share whose cases come by document.

    Wilson's interval of as many cases as tell as much as these: fewer than there are, where the
    cases of a document are alike (the design effect of the ratio estimator, at least 1).

    Args:
        part: Cases of each document that have a property.
        whole: Cases of each document.
    """
    total = float(whole.sum())
    if total == 0:
        return 0.0, 1.0
    share = float(part.sum()) / total
    chance = total * share * (1 - share)
    effect = 1.0
    if chance > 0:
        effect = max(1.0, float(((part - share * whole) ** 2).sum()) / chance)
    size = np.array([total / effect])
    lower, upper = wilson_bounds(share * size, size)
    return float(lower[0]), float(upper[0])
