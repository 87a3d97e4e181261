"""Losses over label subsets against loops, their gradients, and what must not change them."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from longtail.training.losses import (
    DECOUPLED_LOSSES,
    contrastive_negative,
    contrastive_positive,
    depl_loss,
    exponential,
    hinge,
    logistic,
    logistic_base_2,
    ramp,
    softmax_loss,
    squared_hinge,
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


SURROGATES = {
    "hinge": hinge, "logistic_base_2": logistic_base_2, "squared_hinge": squared_hinge,
    "exponential": exponential, "ramp": ramp(0.7),
}  # fmt: skip
ALL = SURROGATES | {
    "logistic": logistic,
    "contrastive_positive": contrastive_positive,
    "contrastive_negative": contrastive_negative,
}


def test_values_are_those_of_the_papers():
    margins = torch.tensor([-1.0, 0.0, 0.5, 2.0], dtype=torch.float64)
    assert hinge(margins).tolist() == [2, 1, 0.5, 0]
    assert squared_hinge(margins).tolist() == [4, 1, 0.25, 0]
    assert exponential(margins).tolist() == pytest.approx([math.exp(-u) for u in margins.tolist()])
    assert ramp(2.0)(margins).tolist() == [1, 1, 0.75, 0]
    natural = [math.log(1 + math.exp(-u)) for u in margins.tolist()]
    assert logistic(margins).tolist() == pytest.approx(natural)
    assert logistic_base_2(margins).tolist() == pytest.approx([x / math.log(2) for x in natural])
    assert contrastive_positive(margins).tolist() == [4, 1, 0.25, 1]
    assert contrastive_negative(margins).tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("name", ALL)
def test_gradients_are_those_of_finite_differences(name):
    margins = torch.tensor([-1.3, -0.2, 0.3, 0.6, 1.4], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ALL[name], margins)


@pytest.mark.parametrize("name", SURROGATES)
def test_an_endless_margin_costs_nothing_and_has_no_gradient(name):
    margin = torch.tensor([math.inf], requires_grad=True)
    loss = SURROGATES[name](margin)
    loss.sum().backward()
    assert loss.item() == 0
    assert margin.grad.item() == 0


Y = 1  # the positive label
OTHERS = [0, 2, 3, 4]
M = 3
SCORES = torch.tensor([0.7, -0.4, 1.5, 0.2, -1.1], dtype=torch.float64)
Q = torch.tensor([0.4, 0.0, 0.1, 0.3, 0.2], dtype=torch.float64)
RHO = torch.tensor([0.5, 0.0, 2.0, 1.3, 0.1], dtype=torch.float64)
W = torch.tensor([0.3, 0.0, 1.2, 0.6, 2.0], dtype=torch.float64)
ALL_LOSSES = {"softmax": softmax_loss} | DECOUPLED_LOSSES


def loss_over(loss: Callable[..., Tensor], labels: list[int], weights: Tensor) -> float:
    return float(loss(SCORES[[Y]], SCORES[labels][None], weights[labels][None].log()))


def moments(loss: Callable[..., Tensor], q: Tensor, w: Tensor) -> tuple[float, float]:
    """Mean and variance of a sampled loss over all L^m draws."""
    draws = list(itertools.product(OTHERS, repeat=M))
    values = np.array([loss_over(loss, list(draw), w) for draw in draws])
    probabilities = np.array([math.prod(q[list(draw)].tolist()) for draw in draws])
    assert probabilities.sum() == pytest.approx(1)
    mean = float(probabilities @ values)
    return mean, float(probabilities @ (values - mean) ** 2)


def test_softmax_is_the_cross_entropy_over_all_labels():
    expected = -SCORES.log_softmax(0)[Y]
    assert loss_over(softmax_loss, OTHERS, torch.ones(5)) == pytest.approx(float(expected))


def test_softmax_with_weights_equals_a_loop():
    total = 1 + sum(float(W[y] * (SCORES[y] - SCORES[Y]).exp()) for y in OTHERS)
    assert loss_over(softmax_loss, OTHERS, W) == pytest.approx(math.log(total))


@pytest.mark.parametrize("name", DECOUPLED_LOSSES)
def test_decoupled_losses_equal_a_loop(name):
    loss = DECOUPLED_LOSSES[name]
    total = loss.of_positive(SCORES[Y]) + sum(W[y] * loss.of_negative(-SCORES[y]) for y in OTHERS)
    assert loss_over(loss, OTHERS, W) == pytest.approx(float(total))


@pytest.mark.parametrize("name", ALL_LOSSES)
def test_the_loss_of_a_batch_is_the_mean_of_its_pairs(name):
    loss = ALL_LOSSES[name]
    positive = torch.tensor([0.3, -1.0])
    negatives = torch.tensor([[0.1, 2.0], [0.5, -0.5]])
    log_w = torch.tensor([[0.0, -0.3], [-math.inf, 0.2]])
    each = [loss(positive[i : i + 1], negatives[i : i + 1], log_w[i : i + 1]) for i in range(2)]
    assert float(loss(positive, negatives, log_w)) == pytest.approx(float(sum(each)) / 2)


@pytest.mark.parametrize("name", ALL_LOSSES)
def test_negatives_of_weight_0_cost_nothing_and_get_no_gradient(name):
    negatives = torch.tensor([[0.4, 3.0]], requires_grad=True)
    args = torch.tensor([0.2]), torch.tensor([[0.0, -math.inf]])
    loss = ALL_LOSSES[name](args[0], negatives, args[1])
    loss.backward()
    alone = ALL_LOSSES[name](args[0], negatives[:, :1], args[1][:, :1])
    assert float(loss.detach()) == pytest.approx(float(alone.detach()))
    assert negatives.grad[0, 1] == 0


def test_a_pair_without_negatives_costs_nothing_in_the_softmax_and_has_no_nan():
    positive = torch.tensor([0.2], requires_grad=True)
    loss = softmax_loss(positive, torch.tensor([[1.0]]), torch.tensor([[-math.inf]]))
    loss.backward()
    assert loss == 0
    assert positive.grad == 0


@pytest.mark.parametrize("name", ALL_LOSSES)
def test_gradients_of_pair_losses_are_those_of_finite_differences(name):
    generator = torch.Generator().manual_seed(2)
    positive = torch.randn(3, dtype=torch.float64, generator=generator, requires_grad=True)
    negatives = torch.randn(3, 4, dtype=torch.float64, generator=generator, requires_grad=True)
    log_w = torch.randn(3, 4, dtype=torch.float64, generator=generator)
    assert torch.autograd.gradcheck(
        lambda p, n: ALL_LOSSES[name](p, n, log_w), (positive, negatives)
    )


@pytest.mark.parametrize("name", ALL_LOSSES)
def test_half_precision_scores_are_summed_in_float32(name):
    positive, negatives = torch.tensor([30.0]), torch.full((1, 1000), 29.5)
    args = (positive.bfloat16(), negatives.bfloat16(), torch.zeros(1, 1000))
    loss = ALL_LOSSES[name](*args)
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(
        float(ALL_LOSSES[name](positive, negatives, torch.zeros(1, 1000)))
    )


@pytest.mark.parametrize("name", DECOUPLED_LOSSES)
def test_lemma_1_mean_and_variance_of_the_sampled_decoupled_loss(name):
    loss = DECOUPLED_LOSSES[name]
    mean, variance = moments(loss, Q, W)
    rho = M * W * Q
    varphi = loss.of_negative(-SCORES)
    assert mean == pytest.approx(float(loss.of_positive(SCORES[Y]) + (rho * varphi).sum()))
    expected = (W * rho * varphi**2).sum() - (rho * varphi).sum() ** 2 / M
    assert variance == pytest.approx(float(expected))


def test_lemma_2_the_implicit_loss_bounds_the_mean_of_the_sampled_softmax():
    mean, _ = moments(softmax_loss, Q, W)
    implicit = loss_over(softmax_loss, OTHERS, M * W * Q)
    assert mean < implicit


@given(st.lists(st.floats(-3, 3), min_size=5, max_size=5), st.integers(0, 2**32 - 1))
def test_lemma_2_holds_for_any_scores_and_weights(scores, seed):
    rng = np.random.default_rng(seed)
    w, q = rng.random(4), rng.dirichlet(np.ones(4))
    terms = w * np.exp(np.array(scores[1:]) - scores[0])
    draws = np.array(list(itertools.product(range(4), repeat=M)))
    mean = np.prod(q[draws], axis=1) @ np.log1p(terms[draws].sum(axis=1))
    log_rho = torch.from_numpy(np.log(M * w * q)).unsqueeze(0)
    score = torch.tensor([scores], dtype=torch.float64)
    assert mean <= float(softmax_loss(score[:, 0], score[:, 1:], log_rho)) + 1e-9


def test_lemma_2_is_equal_for_the_models_own_q_with_importance_weights():
    q = torch.where(torch.arange(5) == Y, 0.0, SCORES.exp())
    q = q / q.sum()
    mean, variance = moments(softmax_loss, q, 1 / (M * q))
    assert mean == pytest.approx(float(-SCORES.log_softmax(0)[Y]))
    assert variance == pytest.approx(0, abs=1e-12)


def test_lemma_2_is_equal_whenever_weights_undo_the_scores():
    """Jensen's inequality is equal where each draw adds the same, whatever q."""
    w = 0.7 * (-SCORES).exp()
    mean, _ = moments(softmax_loss, Q, w)
    assert mean == pytest.approx(loss_over(softmax_loss, OTHERS, M * w * Q))


def test_proposition_4_weights_for_a_margin_have_it_as_their_implicit_loss():
    w = RHO / (M * Q)
    pairwise_margin = math.log(
        1 + sum(float(RHO[y] * (SCORES[y] - SCORES[Y]).exp()) for y in OTHERS)
    )
    assert loss_over(softmax_loss, OTHERS, M * w * Q) == pytest.approx(pairwise_margin)


@given(st.integers(0, 2**32 - 1))
def test_proposition_5_no_q_has_less_variance_than_its_optimum(seed):
    loss = DECOUPLED_LOSSES["logistic"]
    best = RHO * loss.of_negative(-SCORES)
    best = best / best.sum()
    other = torch.zeros(5, dtype=torch.float64)
    other[OTHERS] = torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(4)) + 1e-3)
    other = other / other.sum()

    def variance(q: Tensor) -> float:
        rho, varphi = RHO[OTHERS], loss.of_negative(-SCORES)[OTHERS]
        return float(((rho * varphi) ** 2 / q[OTHERS]).sum() - (rho * varphi).sum() ** 2) / M

    assert variance(best) == pytest.approx(0, abs=1e-12)
    assert variance(other) >= -1e-12


def test_proposition_5_at_its_optimum_the_sampled_loss_does_not_vary():
    loss = DECOUPLED_LOSSES["logistic"]
    best = RHO * loss.of_negative(-SCORES)
    best = best / best.sum()
    mean, variance = moments(loss, best, RHO / (M * best))
    assert variance == pytest.approx(0, abs=1e-12)
    assert mean == pytest.approx(loss_over(loss, OTHERS, RHO))


def test_proposition_5_another_q_has_the_variance_of_lemma_1():
    loss = DECOUPLED_LOSSES["logistic"]
    _, variance = moments(loss, Q, RHO / (M * Q))
    costs = (RHO * loss.of_negative(-SCORES))[OTHERS]
    expected = ((costs**2 / Q[OTHERS]).sum() - costs.sum() ** 2) / M
    assert variance == pytest.approx(float(expected))
    assert variance > 0.01
