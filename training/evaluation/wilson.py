"""Wilson's interval of a share where a document counts several times."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from longtail.models.labels.figures import wilson_bounds


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
