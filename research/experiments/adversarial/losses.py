"""What the linear scorers minimise: negative sampling, noise-contrastive estimation, bounds.

Bamler & Mandt 2020, and the baselines of its section 5. Each takes the mean over pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import softplus

from longtail.models.errors import DataError
from longtail.training.configuration.learning import LossOverPairs, register
from longtail.training.learning.objectives import Scorer
from longtail.training.learning.sampling import Distribution, Negatives, Pairs, constant, importance
from longtail.training.losses import PairLoss, at_least_float32, logistic

_STEP_EXPONENT = 0.9
"""The exponent of local steps of augment and reduce, (1 + epoch)^-0.9, as in its published code."""


@dataclass(frozen=True, slots=True)
class NoiseContrast:
    """Tells positives from draws: negative sampling, or noise-contrastive estimation (NCE).

    With the *ratio* r, the log-odds that a label is the positive and not drawn, and the *corrected*
    score c = r + log p_n(y|x), a pair with negatives y' costs

        -log sigma(r_y) + lambda c_y^2 + mean over y' of (-log sigma(-r_y') + lambda c_y'^2)

    Negative sampling (Bamler & Mandt 2020, Eq. 2; Eq. 6 with lambda) learns the score xi = r, so c
    is known after training alone (Eq. 5). NCE (Gutmann & Hyvarinen 2010) learns xi = c + log Z, and
    c is xi in the regulariser, as in the paper's published code. It needs no correction, but must
    learn what p_n knows already. The gradients to xi are, for both,

        -sigma(-r_y) + 2 lambda c_y    and    (sigma(r_y') + 2 lambda c_y') / m

    Several negatives count as one: their mean is taken, so p_n needs no factor m.

    Attributes:
        distribution: p_n. The correction is exact where pairs exclude no label; with exclusions,
            p_n here is renormalised without them for negatives, and not for positives.
        regulariser: lambda, at least 0.
        log_normaliser: log Z of NCE. With log L, scores of zero are the uniform distribution; with
            0, labels that are seldom drawn would keep a score above all that are learned. None:
            negative sampling.
    """

    distribution: Distribution
    regulariser: float = 0.0
    log_normaliser: float | None = None

    def __call__(
        self, pairs: Pairs, score: Scorer, generator: torch.Generator
    ) -> Float[Tensor, ""]:
        """Draw negatives, score them and the positives, and return the mean loss."""
        negatives = self.distribution.draw(pairs, generator)  # labels and log p_n: (batch, m)
        self._check(pairs, negatives)
        # -log sigma(r_y) + lambda c_y^2, of shape (batch, 1)
        positive = self._costs(score(pairs.labels.unsqueeze(1)), negatives.log_q_positive, 1)
        # -log sigma(-r_y') + lambda c_y'^2, of shape (batch, m). Where nothing is drawn log p_n is
        # -inf, and times the weight 0 of below it would be nan.
        log_noise = negatives.log_q.masked_fill(~negatives.is_drawn, 0.0)
        drawn = self._costs(score(negatives.labels), log_noise, -1)
        # `constant` weighs each draw 1 / m: the mean over y', then that over the pairs.
        return (positive.squeeze(1) + (constant(negatives).exp() * drawn).sum(dim=1)).mean()

    def _costs(
        self, scores: Float[Tensor, "batch k"], log_noise: Float[Tensor, "batch k"], sign: int
    ) -> Float[Tensor, "batch k"]:
        scores = at_least_float32(scores)
        if self.log_normaliser is None:  # negative sampling: xi = r, so c = xi + log p_n (Eq. 5)
            ratios, corrected = scores, scores + log_noise
        else:  # NCE: r = xi - log Z - log p_n; the regulariser takes xi for c
            ratios, corrected = scores - self.log_normaliser - log_noise, scores
        costs = logistic(sign * ratios)  # -log sigma(sign r)
        return costs + self.regulariser * corrected.square() if self.regulariser else costs

    def _check(self, pairs: Pairs, negatives: Negatives) -> None:
        """Refuse positives that are never drawn, where that makes the loss infinite."""
        is_never = negatives.log_q_positive.squeeze(1) == -torch.inf
        needs_log = self.regulariser > 0 or self.log_normaliser is not None
        if needs_log and bool(is_never.any()):
            label = int(pairs.labels[is_never.int().argmax()])
            raise DataError(
                f"negatives: label {label} is never drawn, but is a positive; the regulariser of "
                "negative sampling and NCE need its log p_n: take a distribution with a wider "
                "support"
            )


def one_versus_each_loss(
    positive: Float[Tensor, batch],
    negatives: Float[Tensor, "batch sampled"],
    log_weights: Float[Tensor, "batch sampled"],
) -> Float[Tensor, ""]:
    """Return the mean of sum w log(1 + exp(f_y' - f_y)): Titsias 2016, the one-versus-each bound.

    Over all labels but y with w = 1 it is at least the softmax cross-entropy, as
    log(1 + sum a) <= sum log(1 + a); over draws with importance weights, an estimate of that.

    Args:
        positive: f_y.
        negatives: f_y' of the negatives.
        log_weights: log w; -inf leaves a negative out.
    """
    positive, negatives = at_least_float32(positive), at_least_float32(negatives)
    # w log(1 + exp(f_y' - f_y)) of shape (batch, sampled); exp(-inf) = 0 leaves a negative out.
    costs = log_weights.exp() * logistic(positive.unsqueeze(1) - negatives)
    return costs.sum(dim=1).mean()


@register
class OneVersusEachConfig(LossOverPairs):
    """The one-versus-each bound (Titsias 2016)."""

    kind: Literal["one_versus_each"] = "one_versus_each"

    def formula(self, num_labels: int, num_negatives: int) -> PairLoss:
        """Return the bound."""
        del num_labels, num_negatives
        return one_versus_each_loss


@dataclass(frozen=True, slots=True, eq=False)
class AugmentAndReduce:
    """Softmax by a bound with a number of its own for each pair (Ruiz et al. 2018, softmax).

    The cross-entropy log(1 + S), S the sum of exp(f_y' - f_y) over all labels but y, is at most

        log(1 + eta) + (1 + S) / (1 + eta) - 1,

    with equality at eta = S. Draws estimate S. A step first moves eta of its pairs towards that
    estimate by the share (1 + epoch)^-0.9, then takes the gradient of the bound to the scores.
    Logarithms take the place of the published code's exponentials, which overflow.

    Attributes:
        distribution: Must not draw the positive.
        keys: Document times the number of labels plus label of each pair, rising.
        num_labels: L.
        log_eta: log eta of each pair; changed in place.
        num_seen: Pairs trained on so far, in one entry; changed in place.
    """

    distribution: Distribution
    keys: Int64[Tensor, pair]
    num_labels: int
    log_eta: Float32[Tensor, pair]
    num_seen: Int64[Tensor, 1]

    @classmethod
    def of(
        cls,
        distribution: Distribution,
        truth: Float32[csr_array, "document label"],
        device: str,
    ) -> AugmentAndReduce:
        """Start with eta = 1 for every pair, as the published code does."""
        num_labels = truth.shape[1]
        documents = np.repeat(np.arange(truth.shape[0], dtype=np.int64), np.diff(truth.indptr))
        keys = torch.from_numpy(np.sort(documents * num_labels + truth.indices)).to(device)
        log_eta = torch.zeros(truth.nnz, device=device)
        num_seen = torch.zeros(1, dtype=torch.int64, device=device)
        return cls(distribution, keys, num_labels, log_eta, num_seen)

    def state(self) -> dict[str, Tensor]:
        """Return what changes in training."""
        return {"log_eta": self.log_eta, "num_seen": self.num_seen}

    def __call__(
        self, pairs: Pairs, score: Scorer, generator: torch.Generator
    ) -> Float[Tensor, ""]:
        """Draw negatives, score them and the positives, update eta, and return the mean bound."""
        negatives = self.distribution.draw(pairs, generator)
        positive = at_least_float32(score(pairs.labels.unsqueeze(1)))
        margins = at_least_float32(score(negatives.labels)) - positive  # f_y' - f_y: (batch, m)
        # log of the estimate of S by importance weights, of shape (batch,)
        log_sum = (margins + importance(negatives)).logsumexp(dim=1)
        log_total = softplus(self._update(pairs, log_sum.detach()))  # log(1 + eta)
        # (1 + S) / (1 + eta) as exp(0 - log(1 + eta)) + exp(log S - log(1 + eta)): only log S has a
        # gradient, and at eta = S it is that of log(1 + S).
        terms = torch.stack([torch.zeros_like(log_sum), log_sum], dim=1) - log_total.unsqueeze(1)
        return (log_total + terms.exp().sum(dim=1) - 1).mean()

    def _update(self, pairs: Pairs, log_sum: Float[Tensor, batch]) -> Float[Tensor, batch]:
        """Move eta of the pairs towards the estimate, and return its logarithm."""
        positions = torch.searchsorted(self.keys, pairs.documents * self.num_labels + pairs.labels)
        # eta <- (1 - rho) eta + rho S with rho = (1 + epoch)^-0.9, in logarithms.
        share = (2 + self.num_seen // len(self.keys)).float() ** -_STEP_EXPONENT  # epochs from 1
        old = self.log_eta[positions] + torch.log1p(-share)
        log_eta = torch.logaddexp(old, log_sum + share.log())
        self.log_eta[positions] = log_eta.to(self.log_eta)
        self.num_seen.add_(len(positions))
        return log_eta
