"""Losses over a subset of the labels, all positives of a document at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from longtail.models.errors import ConfigError
from longtail.training.learning.pair_losses import at_least_float32

SubsetLoss = Callable[[Tensor, Tensor], Tensor]
"""Turns scores (batch, sampled) and which of them are of positives into a number."""

_HALVINGS = 60
"""Of the interval that holds the threshold of the soft top-k; float64 has no more digits."""


def depl_loss(
    scores: Float[Tensor, "batch sampled"], is_positive: Bool[Tensor, "batch sampled"]
) -> Float[Tensor, ""]:
    """Return the mean over documents of the summed binary cross-entropy over sampled labels.

    L_dual of Zhang et al. 2023, section 3.3. Its second term is printed there as log sigma(1 - f);
    the gradient analysis of section 4 is that of the binary cross-entropy, whose second term is
    log(1 - sigma(f)), which is what we use.

    Args:
        scores: f(x_i, l) of every document i of the batch and every label l of its subset.
        is_positive: Whether document i carries label l.
    """
    scores = at_least_float32(scores)
    target = is_positive.to(scores)
    return binary_cross_entropy_with_logits(scores, target, reduction="sum") / scores.shape[0]


def decoupled_softmax_loss(
    scores: Float[Tensor, "batch sampled"], is_positive: Bool[Tensor, "batch sampled"]
) -> Float[Tensor, ""]:
    """Return the softmax cross-entropy of each positive against the negatives alone.

    Gupta et al. 2024 (DEXML): the mean over documents of the mean over their positives of
    -log(exp f_y / (exp f_y + sum over negatives of exp f_y')). The other positives don't stand in
    the denominator, so they don't push each other down. A document without positives adds 0.

    Args:
        scores: f(x_i, l) of every document i of the batch and every label l of its subset.
        is_positive: Whether document i carries label l.
    """
    scores = at_least_float32(scores)
    # A score of -inf would give logsumexp no gradient where all labels are positives.
    lowest = torch.finfo(scores.dtype).min
    log_negatives = scores.masked_fill(is_positive, lowest).logsumexp(dim=1, keepdim=True)
    return _mean_over_positives(torch.logaddexp(log_negatives, scores) - scores, is_positive)


def soft_top_k_loss(
    scores: Float[Tensor, "batch sampled"],
    is_positive: Bool[Tensor, "batch sampled"],
    *,
    k: int,
    sharpness: float = 1.0,
) -> Float[Tensor, ""]:
    """Return how far positives are from being among the k best labels, softly.

    Gupta et al. 2024 (DEXML): the mean over documents of the mean over their positives of -log
    alpha_y, where alpha_y = sigma(sharpness (f_y + t)) and t makes the alphas of all labels sum to
    k. Their code draws k of the positives where a document has more; here all count, and share the
    k. A document without positives adds 0.

    Args:
        scores: f(x_i, l) of every document i of the batch and every label l of its subset.
        is_positive: Whether document i carries label l.
        k: Labels that the top has room for, at least 1 and below the number of labels scored.
        sharpness: How close alpha comes to a step.

    Raises:
        ConfigError: k is not below the number of labels scored.
    """
    if not 0 < k < scores.shape[1]:
        raise ConfigError(
            f"soft top-k: k is {k}, with {scores.shape[1]} labels scored a step; "
            "expected at least 1 and fewer than are scored"
        )
    scores = sharpness * at_least_float32(scores)
    return _mean_over_positives(-logsigmoid(scores + _threshold(scores, k)), is_positive)


def _threshold(scores: Float[Tensor, "batch sampled"], k: int) -> Float[Tensor, "batch 1"]:
    """Return t with sum sigma(score + t) = k, and its gradient.

    Found by bisection. One step of Newton's method from there, in which only the sum's numerator
    is differentiated, has by the implicit function theorem the gradient of t.
    """
    fixed = scores.detach()
    # All sigmoids are at most k / L at the low end, at least k / L at the high one.
    even = math.log(k / (scores.shape[1] - k))
    low = even - fixed.amax(dim=1, keepdim=True)
    high = even - fixed.amin(dim=1, keepdim=True)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_low = torch.sigmoid(fixed + middle).sum(dim=1, keepdim=True) < k
        low, high = torch.where(is_low, middle, low), torch.where(is_low, high, middle)
    found = (low + high) / 2
    shares = torch.sigmoid(scores + found)
    slope = (shares * (1 - shares)).detach().sum(dim=1, keepdim=True)
    miss = shares.sum(dim=1, keepdim=True) - k
    return found - miss / slope.clamp(min=torch.finfo(slope.dtype).tiny)


def _mean_over_positives(
    costs: Float[Tensor, "batch sampled"], is_positive: Bool[Tensor, "batch sampled"]
) -> Float[Tensor, ""]:
    counts = is_positive.sum(dim=1).clamp(min=1)
    return ((costs * is_positive).sum(dim=1) / counts).mean()
