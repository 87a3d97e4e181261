"""Losses over label subsets against loops, their gradients, and what must not change them."""

import math

import pytest
import torch

from longtail.training.losses import depl_loss


def random_batch(batch: int = 3, sampled: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(batch, sampled, generator=generator)
    return scores, torch.rand(batch, sampled, generator=generator) < 0.3


def test_loss_equals_a_loop_over_documents_and_labels():
    scores, is_positive = random_batch()
    total = 0.0
    for row, positives in zip(scores.tolist(), is_positive.tolist(), strict=True):
        for score, positive in zip(row, positives, strict=True):
            probability = 1 / (1 + math.exp(-score))
            total -= math.log(probability if positive else 1 - probability)
    assert float(depl_loss(scores, is_positive)) == pytest.approx(total / len(scores), rel=1e-5)


def test_gradient_is_that_of_finite_differences():
    scores, is_positive = random_batch()
    scores = scores.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: depl_loss(x, is_positive), scores)


def test_extreme_scores_and_half_precision_stay_finite():
    scores = torch.tensor([[1e4, -1e4]], dtype=torch.bfloat16)
    is_positive = torch.tensor([[False, True]])
    assert float(depl_loss(scores, is_positive)) == pytest.approx(2e4, rel=1e-2)
