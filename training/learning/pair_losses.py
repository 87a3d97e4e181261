"""Losses of (document, positive label) pairs against weighted negatives, drawn or all.

A pair loss takes f_y of each pair, f_y' of its negatives and log w, and returns the mean over the
pairs. With all labels as negatives and w = rho these are the losses of Rawat et al. 2021 without
sampling; with draws, the sampled ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from longtail.training.learning.margin_losses import (
    MarginLoss,
    contrastive_negative,
    contrastive_positive,
    hinge,
    logistic,
    squared_hinge,
)

PairLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Turns scores of positives (batch) and of negatives (batch, sampled), and log w, into a number."""


def softmax_loss(
    positive: Float[Tensor, batch],
    negatives: Float[Tensor, "batch sampled"],
    log_weights: Float[Tensor, "batch sampled"],
) -> Float[Tensor, ""]:
    """Return the mean of log(1 + sum w exp(f_y' - f_y)).

    Rawat et al. 2021: over all labels but y the softmax cross-entropy with w = 1 (Eq. 3-4) and the
    pairwise margin loss with w = rho (Eq. 6); over draws the sampled softmax (Eq. 7). With the
    other positives of the document excluded it is the decoupled softmax of Gupta et al. 2024.

    Args:
        positive: f_y.
        negatives: f_y' of the negatives.
        log_weights: log w; -inf leaves a negative out.
    """
    positive, negatives = at_least_float32(positive), at_least_float32(negatives)
    terms = negatives - positive.unsqueeze(1) + log_weights
    return pad(terms, (1, 0)).logsumexp(dim=1).mean()  # the 0 in front stands for log 1


@dataclass(frozen=True, slots=True)
class DecoupledLoss:
    """A margin loss of the positive plus weighted ones of the negatives.

    Rawat et al. 2021, Eq. 5 (all labels, w = 1) and Eq. 8 (draws).

    Attributes:
        of_positive: phi, taken at f_y.
        of_negative: The printed varphi, taken at -f_y'.
    """

    of_positive: MarginLoss
    of_negative: MarginLoss

    def __call__(
        self,
        positive: Float[Tensor, batch],
        negatives: Float[Tensor, "batch sampled"],
        log_weights: Float[Tensor, "batch sampled"],
    ) -> Float[Tensor, ""]:
        """Return the mean of phi(f_y) + sum w varphi(-f_y').

        Args:
            positive: f_y.
            negatives: f_y' of the negatives.
            log_weights: log w; -inf leaves a negative out.
        """
        positive, negatives = at_least_float32(positive), at_least_float32(negatives)
        costs = log_weights.exp() * self.of_negative(-negatives)
        return (self.of_positive(positive) + costs.sum(dim=1)).mean()


DECOUPLED_LOSSES = {
    "logistic": DecoupledLoss(logistic, logistic),
    "hinge": DecoupledLoss(hinge, hinge),
    "squared_hinge": DecoupledLoss(squared_hinge, squared_hinge),
    "cosine_contrastive": DecoupledLoss(contrastive_positive, contrastive_negative),
}
"""By name; the contrastive one wants cosines as scores."""


def at_least_float32(scores: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return the scores in a precision that sums of exponentials bear: bfloat16 is too coarse."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
