"""The theory of negative sampling (Bamler & Mandt 2020, section 4 and appendix A.1) on tables.

"Nonparametric" means that the score of every document and label is a parameter of its own: a table
xi. With p_D(y|x) and p_n(y|x) as tables too, the optimum, the Hessian and the covariance of the
stochastic gradient are known, and the same can be measured with the loss that training uses.
Documents are as likely as each other, and N is their number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from longtail.training.learning.document_distributions import TreeNegatives
from longtail.training.learning.sampling import Pairs
from research.experiments.adversarial.losses import NoiseContrast

Table = Float64[Tensor, "document label"]
"""Probabilities or scores: a row a document."""


def optimal_scores(data: Table, noise: Table) -> Table:
    """Return the scores that minimise negative sampling: log p_D - log p_n (Eq. 11).

    Args:
        data: p_D, above 0.
        noise: p_n, above 0.
    """
    return data.log() - noise.log()


def expected_loss(scores: Table, data: Table, noise: Table) -> Float64[Tensor, ""]:
    """Return the expectation of the stochastic loss, summed over documents (Eq. A1)."""
    positive = data * torch.nn.functional.softplus(-scores)
    negative = noise * torch.nn.functional.softplus(scores)
    return (positive + negative).sum()


def hessian_diagonal(data: Table, noise: Table) -> Table:
    """Return alpha, the Hessian at the optimum, which is diagonal: p_n sigma(xi) (Eq. 13)."""
    return noise * optimal_scores(data, noise).sigmoid()


def gradient_covariance(data: Table, noise: Table) -> Float64[Tensor, "document label label"]:
    """Return the blocks C_x of the covariance of the stochastic gradient (Eq. 14).

    C_x = N diag(alpha_x) - 2 N alpha_x alpha_x^T; gradients of different documents don't covary.
    """
    alpha = hessian_diagonal(data, noise)
    outer = alpha.unsqueeze(2) * alpha.unsqueeze(1)  # (document, label, label)
    return len(data) * (torch.diag_embed(alpha) - 2 * outer)


def signal_to_noise(data: Table, noise: Table) -> float:
    """Return eta = 1 / (N sum over x of (|Y| - 2 sum over y of alpha)) (Eq. 12 and 15).

    At p_n = p_D alone it has its maximum, 1 / (N^2 (|Y| - 1)), of all p_n (Theorem 2).
    """
    num_documents, num_labels = data.shape
    sums = num_labels - 2 * hessian_diagonal(data, noise).sum(dim=1)
    return float(1 / (num_documents * sums.sum()))


def measured_signal_to_noise(
    data: Table, noise: Table, num_draws: int, generator: torch.Generator
) -> float:
    """Return eta = 1 / Tr[Cov[g, g] H^-1] (Eq. 12) of gradients that training's loss gives.

    Pairs are drawn from p_D, their negatives from p_n by the sampler of training, and each draw's
    gradient to the table comes from automatic differentiation at the optimal scores. The Hessian is
    that of the expected loss, by automatic differentiation too.

    Args:
        data: p_D.
        noise: p_n.
        num_draws: Draws that Cov is the mean of; the gradient's mean is known to be 0.
        generator: Source of all draws, on the CPU.
    """
    num_documents = len(data)
    optimum = optimal_scores(data, noise)
    documents = torch.randint(num_documents, (num_draws,), generator=generator)
    labels = torch.multinomial(data[documents], 1, generator=generator).squeeze(1)
    pairs = Pairs(documents, labels, labels.new_empty(num_draws, 0), _as_vectors(documents))
    scores = optimum[documents].requires_grad_()  # a table row of its own for each draw
    objective = NoiseContrast(TreeNegatives(TableSampler(noise), 1))
    objective(pairs, lambda drawn: scores.gather(1, drawn), generator).backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    gradients = num_documents * num_draws * scores.grad  # Eq. A7 has a factor N, and no mean
    variances = torch.zeros_like(data).index_add_(0, documents, gradients.square()) / num_draws
    return float(1 / (variances / _measured_hessian(optimum, data, noise)).sum())


def _measured_hessian(scores: Table, data: Table, noise: Table) -> Table:
    scores = scores.clone().requires_grad_()
    gradient = torch.autograd.grad(expected_loss(scores, data, noise), scores, create_graph=True)[0]
    # The Hessian is diagonal, so the sum of its rows is the diagonal.
    return torch.autograd.grad(gradient.sum(), scores)[0]


def noise_between(data: Table, exponent: float) -> Table:
    """Return p_n proportional to p_D^exponent: 0 is uniform, 1 is p_D, above 1 is sharper."""
    return (exponent * data.log()).softmax(dim=1)


def sweep(data: Table, exponents: list[float]) -> list[float]:
    """Return eta for p_n proportional to p_D^exponent, of each exponent (Theorem 2)."""
    return [signal_to_noise(data, noise_between(data, exponent)) for exponent in exponents]


@dataclass(frozen=True, slots=True)
class TableSampler:
    """A `TreeSampler` whose p_n is a table; a document's vector holds its number alone."""

    noise: Table

    def project(self, vectors: Tensor) -> Tensor:
        """Return the vectors."""
        return vectors

    def sample(self, features: Tensor, num: int, generator: torch.Generator) -> Tensor:
        """Draw labels from rows of the table."""
        probabilities = self.noise[_as_documents(features)]
        return torch.multinomial(probabilities, num, replacement=True, generator=generator)

    def log_prob(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return the logarithms of entries of the table."""
        return self.noise[_as_documents(features)].gather(1, labels).log().float()


def _as_vectors(documents: Int64[Tensor, batch]) -> Tensor:
    return documents.unsqueeze(1).float()


def _as_documents(features: Tensor) -> Tensor:
    return features.squeeze(1).long()


def random_table(num_documents: int, num_labels: int, seed: int, spread: float = 1.5) -> Table:
    """Return made-up probabilities: the softmax of normal scores of this standard deviation."""
    scores = np.random.default_rng(seed).normal(0, spread, (num_documents, num_labels))
    return torch.from_numpy(scores).softmax(dim=1)
