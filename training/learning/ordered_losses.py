"""Ordered weighted losses, and stochastic negative mining (Reddi et al. 2019).

The negatives of a pair are put in order of their scores, the highest first, and the j-th costs
theta_j times a margin loss phi. Over a uniform subset of the labels, with weights vartheta for its
ranks, that is stochastic negative mining; its expectation is again an ordered weighted loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from longtail.training.learning.margin_losses import MarginLoss
from longtail.training.learning.pair_losses import at_least_float32


@dataclass(frozen=True, slots=True)
class OrderedLoss:
    """The pairwise or the binary ordered weighted loss.

    Convex in the scores if phi is and theta does not rise (Theorem 2). With theta_j = 1/k for the
    first k it bounds the retrieval loss I(y not among the top k) (Theorem 3): the pairwise one
    from above, the binary one twice. The factor of two needs phi(u) + phi(-u) >= 2, which convexity
    gives; the theorem is printed without that condition, and the ramp loss, for which the sum can
    be 1, bounds it but once.

    Attributes:
        margin_loss: phi.
        form: "pairwise" (POWL, Definition 3) or "binary" (BOWL, Definition 4).
    """

    margin_loss: MarginLoss
    form: Literal["pairwise", "binary"]

    def __call__(
        self,
        positive: Float[Tensor, batch],
        negatives: Float[Tensor, "batch sampled"],
        theta: Float[Tensor, "#batch rank"],
    ) -> Float[Tensor, ""]:
        """Return the mean over pairs; O(B log k) for B negatives and k ranks.

        Args:
            positive: v_y.
            negatives: Scores of the others; -inf leaves one out, behind all others.
            theta: Weight of each rank, the highest score first; negatives behind the last rank cost
                nothing. At most as many ranks as negatives.
        """
        positive = at_least_float32(positive).unsqueeze(1)
        hardest = at_least_float32(negatives).topk(theta.shape[1], dim=1).values
        if self.form == "pairwise":
            return (theta * self.margin_loss(positive - hardest)).sum(dim=1).mean()
        return (
            self.margin_loss(positive)
            + (theta * self.margin_loss(-hardest)).sum(dim=1, keepdim=True)
        ).mean()


def mining_weights(k: int, *, num_labels: int, num_sampled: int) -> Float32[Tensor, "1 k"]:
    """Return vartheta of stochastic negative mining: ranks 1 to k of B sampled labels count.

    This is Top-k mining, vartheta_j = (K - 1) / (k B); its ordered loss has theta_j = 1/k for
    j <= k, so it bounds the retrieval loss. With k' < k in place of k it is Top-k' mining, which
    bounds the retrieval loss at k' and so, from further above, the one at k. With k = B it is plain
    negative sampling. Differing from Lemma 2 as printed, theta is not all above 0: a label with
    fewer than B - k others below it is never among the k best of B.

    Args:
        k: Processes that count.
        num_labels: K, at least 2.
        num_sampled: B, at least k.
    """
    return torch.full((1, k), (num_labels - 1) / (k * num_sampled))
