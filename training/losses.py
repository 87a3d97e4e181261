"""Losses over a subset of the labels."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits


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
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))  # bfloat16 is too coarse
    target = is_positive.to(scores)
    return binary_cross_entropy_with_logits(scores, target, reduction="sum") / scores.shape[0]
