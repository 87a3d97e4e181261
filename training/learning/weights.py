"""Weights w of drawn negatives: Rawat et al. 2021, Table 1 and Eq. 15-16, as logarithms.

With w, a sampled loss stands for one over all labels with the margins rho = m q w (Lemmas 1 and 2).
`TargetMargin` goes the other way: it names rho, and gives w = rho / (m q) whatever q is (Eq. 15).
Its margins are those of Eq. 6; importance weighting is the margin 1, the paper's "tail" weighting
is the logit adjustment.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from longtail.training.learning.sampling import Negatives, look_up

Weight = Callable[[Negatives], Float[Tensor, "batch sampled"]]
"""Turns what was drawn for a batch of pairs into log w; -inf where nothing was drawn."""

Margin = Callable[[Tensor, Tensor], Tensor]
"""Turns log pi of positives (batch, 1) and of negatives (batch, sampled) into log rho."""


def constant(negatives: Negatives) -> Float[Tensor, "batch sampled"]:
    """Return log of 1 / m, so that rho = q."""
    return _where_drawn(negatives, -negatives.log_count())


def importance(negatives: Negatives) -> Float[Tensor, "batch sampled"]:
    """Return log of 1 / (m q), so that rho = 1: no bias from sampling."""
    return _where_drawn(negatives, -negatives.log_count() - negatives.log_q)


def relative(negatives: Negatives) -> Float[Tensor, "batch sampled"]:
    """Return log of q_y / q_y', so that rho = m q_y.

    q_y is that of the positive before it is excluded, where it would be 0; q_y' is that of the
    draw. So the implicit losses of the paper's Table 2 hold as printed where every pair has draws
    of its own. Draws that a batch shares, and those within it, leave out what a pair excludes
    without drawing anew, and this weight does not divide by how many are left: of m draws m (1 -
    q_y) are then expected, so that rho = m (1 - q_y) q_y where the positive alone is excluded. That
    is 0.56 of m q_y for a label with q = 0.44, and the same for all labels that are seldom drawn.
    """
    return _where_drawn(negatives, negatives.log_q_positive - negatives.log_q)


@dataclass(frozen=True, slots=True)
class TargetMargin:
    """Weights for a target margin: rho / (m q) (Eq. 15).

    Attributes:
        log_prior: log pi of every label, its share of all training pairs; -inf for labels without.
        margin: Log rho from the priors.
    """

    log_prior: Float32[Tensor, label]
    margin: Margin

    def __call__(self, negatives: Negatives) -> Float[Tensor, "batch sampled"]:
        """Return log of rho / (m q)."""
        positive = look_up(self.log_prior, negatives.positives.unsqueeze(1))
        log_rho = self.margin(positive, look_up(self.log_prior, negatives.labels))
        return log_rho + importance(negatives)


def logit_adjusted(
    log_positive: Float[Tensor, "batch 1"], log_negative: Float[Tensor, "#batch sampled"]
) -> Float[Tensor, "batch sampled"]:
    """Return log of rho = pi_y' / pi_y (Menon et al. 2020): the "tail" weighting, Eq. 16."""
    return log_negative - log_positive


def equalised(
    log_positive: Float[Tensor, "batch 1"], log_negative: Float[Tensor, "#batch sampled"]
) -> Float[Tensor, "batch sampled"]:
    """Return log of rho = pi_y' (Tan et al. 2020 with F the identity, as in Table 2)."""
    return log_negative.expand(len(log_positive), -1)


def adaptive(
    log_positive: Float[Tensor, "batch 1"], log_negative: Float[Tensor, "#batch sampled"]
) -> Float[Tensor, "batch sampled"]:
    """Return log of rho = pi_y^(-1/4) (Cao et al. 2019; the paper leaves its factor open)."""
    return (-0.25 * log_positive).expand(-1, log_negative.shape[1])


def _where_drawn(
    negatives: Negatives,
    log_weights: Float[
        Tensor,
        (
            batch  # sampled
        ),
    ],
) -> Float[Tensor, "batch sampled"]:
    return torch.where(negatives.is_drawn, log_weights, -math.inf)
