"""Losses over label subsets against loops, their gradients, and what must not change them."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.training.losses import (
    decoupled_softmax_loss,
    depl_loss,
    soft_top_k_loss,
    softmax_loss,
)


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


def test_decoupled_softmax_equals_a_loop_over_pairs():
    scores, is_positive = random_batch(4, 6)
    is_positive[0] = False
    total = 0.0
    for row, positives in zip(scores.tolist(), is_positive.tolist(), strict=True):
        negatives = sum(math.exp(s) for s, p in zip(row, positives, strict=True) if not p)
        costs = [
            -math.log(math.exp(s) / (math.exp(s) + negatives))
            for s, p in zip(row, positives, strict=True)
            if p
        ]
        total += sum(costs) / max(1, len(costs))
    loss = decoupled_softmax_loss(scores, is_positive)
    assert float(loss) == pytest.approx(total / len(scores), rel=1e-5)


def test_decoupled_softmax_is_the_softmax_loss_of_the_reduction_to_pairs():
    scores = random_batch(1, 6)[0]
    is_positive = torch.tensor([[True, False, True, False, False, True]])
    positives = scores[is_positive]
    negatives = scores[~is_positive].expand(3, -1)
    pairwise = softmax_loss(positives, negatives, torch.zeros(3, 3))
    assert float(decoupled_softmax_loss(scores, is_positive)) == pytest.approx(float(pairwise))


def test_positives_do_not_push_each_other_down_in_the_decoupled_softmax():
    scores = torch.tensor([[3.0, 1.0, 0.0]], requires_grad=True)
    decoupled_softmax_loss(scores, torch.tensor([[True, True, False]])).backward()
    assert scores.grad[0, 0] < 0
    assert scores.grad[0, 1] < 0
    assert scores.grad[0, 2] > 0


def test_a_document_of_positives_alone_costs_nothing_and_has_no_nan():
    scores = torch.tensor([[3.0, -1.0]], requires_grad=True)
    loss = decoupled_softmax_loss(scores, torch.tensor([[True, True]]))
    loss.backward()
    assert float(loss.detach()) == 0
    assert scores.grad.tolist() == [[0, 0]]


def test_gradients_of_dexml_losses_are_those_of_finite_differences():
    scores, is_positive = random_batch()
    scores = scores.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: decoupled_softmax_loss(x, is_positive), scores)
    assert torch.autograd.gradcheck(
        lambda x: soft_top_k_loss(x, is_positive, k=2, sharpness=0.7), scores
    )


@settings(max_examples=30)
@given(st.lists(st.floats(-20, 20), min_size=3, max_size=12), st.integers(1, 11))
def test_soft_memberships_sum_to_k(row, k):
    k = min(k, len(row) - 1)
    scores = torch.tensor([row], dtype=torch.float64)
    alphas = [
        math.exp(-float(soft_top_k_loss(scores, torch.eye(len(row))[[i]] > 0, k=k)))
        for i in range(len(row))
    ]
    assert sum(alphas) == pytest.approx(k, rel=1e-6)


def test_soft_top_k_with_far_scores_has_no_nan():
    scores = torch.tensor([[300.0, 200.0, -300.0]], requires_grad=True)
    loss = soft_top_k_loss(scores, torch.tensor([[True, False, False]]), k=1)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0, abs=1e-5)
    assert scores.grad.isfinite().all()
