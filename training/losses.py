"""Losses: of pairs against weighted negatives, ordered ones, and those of a subset of the labels.

A pair loss takes f_y of each pair, f_y' of its negatives and log w, and returns the mean over the
pairs. With all labels as negatives and w = rho these are the losses of Rawat et al. 2021 without
sampling; with draws, the sampled ones.

A margin loss phi takes one margin u and does not increase. All but the natural logistic and the two
parts of the contrastive loss are at least I(u <= 0), as Reddi et al. 2019, section 3, require.

An ordered loss sorts the negatives of a pair by their scores, the highest first; the j-th costs
theta_j times a margin loss. Over a uniform subset of the labels, with weights vartheta for its
ranks, that is stochastic negative mining; its expectation is again an ordered weighted loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, pad, relu, softplus

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


SubsetLoss = Callable[[Tensor, Tensor], Tensor]
"""Turns scores (batch, sampled) and which of them are of positives into a number."""


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


def mining_weights(k: int, *, num_labels: int, num_sampled: int) -> tuple[float, ...]:
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
    return k * ((num_labels - 1) / (k * num_sampled),)


MARGIN_LOSSES: Mapping[str, MarginLoss] = {
    "hinge": hinge,
    "logistic_base_2": logistic_base_2,
    "squared_hinge": squared_hinge,
    "exponential": exponential,
    "ramp": ramp(1.0),  # the margin rho is 1
}
"""Margin losses of ordered losses, by their names in a configuration."""


@dataclass(frozen=True, slots=True)
class MiningLoss:
    """Stochastic negative mining (Reddi et al. 2019, Algorithm 1), as a pair loss.

    Attributes:
        ordered: Over the negatives that were drawn.
        rank_weights: vartheta of each rank.
    """

    ordered: OrderedLoss
    rank_weights: tuple[float, ...]

    def __call__(
        self,
        positive: Float[Tensor, batch],
        negatives: Float[Tensor, "batch sampled"],
        log_weights: Float[Tensor, "#batch sampled"],
    ) -> Float[Tensor, ""]:
        """Return the mean over pairs.

        Args:
            positive: v_y.
            negatives: Scores of the others.
            log_weights: -inf leaves a negative out; else without effect.
        """
        drawn = negatives.masked_fill(log_weights.isneginf(), -torch.inf)
        theta = torch.tensor([self.rank_weights], device=positive.device)
        return self.ordered(positive, drawn, theta)
