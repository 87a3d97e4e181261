"""Losses of one margin u, non-increasing: what the decoupled and the ordered losses are made of.

All but the natural logistic and the two parts of the contrastive loss are at least I(u <= 0), as
Reddi et al. 2019, section 3, want of phi.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import relu, softplus

MarginLoss = Callable[[Tensor], Tensor]
"""Turns margins into losses, one by one."""


def logistic(margin: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return ln(1 + exp(-u))."""
    return softplus(-margin)


def logistic_base_2(margin: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return log2(1 + exp(-u)), which is 1 at 0."""
    return softplus(-margin) / math.log(2)


def hinge(margin: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return max(1 - u, 0)."""
    return relu(1 - margin)


def squared_hinge(margin: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return max(1 - u, 0)^2."""
    return relu(1 - margin).square()


def exponential(margin: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return exp(-u)."""
    return (-margin).exp()


def ramp(width: float) -> MarginLoss:
    """Return the loss that is 1 up to 0, then falls to 0 at u = width; not convex.

    Args:
        width: The margin rho, above 0.
    """

    def loss(margin: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return (1 - margin / width).clamp(0, 1)

    return loss


def contrastive_positive(margin: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return (1 - u)^2, for the cosine of a positive (Rawat et al. 2021, section 5.1)."""
    return (1 - margin).square()


def contrastive_negative(margin: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return max(-u, 0)^2, which is max(f, 0)^2 for the cosine f = -u of a negative.

    Printed as max(u, 0)^2 (Rawat et al. 2021, section 5.1). In their Eq. 5, where u = -f, that
    would cost a negative for being far from the document. The contrastive loss of margin 0 (Hadsell
    et al. 2006) costs it for being near.
    """
    return relu(-margin).square()
