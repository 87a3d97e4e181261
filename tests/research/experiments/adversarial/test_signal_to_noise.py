"""Theorems 1 and 2 and Eq. 11-16 of Bamler & Mandt (2020) on tables, against enumeration."""

import itertools

import pytest
import torch

from research.experiments.adversarial.signal_to_noise import (
    expected_loss,
    gradient_covariance,
    hessian_diagonal,
    measured_signal_to_noise,
    noise_between,
    optimal_scores,
    random_table,
    signal_to_noise,
    sweep,
)

NUM_DOCUMENTS, NUM_LABELS = 3, 4
DATA = random_table(NUM_DOCUMENTS, NUM_LABELS, seed=0)
NOISE = random_table(NUM_DOCUMENTS, NUM_LABELS, seed=1)


def test_corrected_scores_of_the_minimum_are_log_p_data_plus_a_constant():
    """Theorem 1, with the minimum found by descent from zero."""
    scores = torch.zeros_like(DATA, requires_grad=True)
    descent = torch.optim.LBFGS([scores], max_iter=500, tolerance_grad=1e-12, tolerance_change=0)

    def closure() -> torch.Tensor:
        descent.zero_grad()
        loss = expected_loss(scores, DATA, NOISE)
        loss.backward()
        return loss

    descent.step(closure)
    found = (scores.detach() + NOISE.log()).log_softmax(dim=1)
    assert torch.allclose(found, DATA.log(), atol=1e-6)
    assert not torch.allclose(scores.detach().log_softmax(dim=1), DATA.log(), atol=0.1)
    assert torch.allclose(scores.detach(), optimal_scores(DATA, NOISE), atol=1e-6)


def test_the_hessian_is_diagonal_and_as_stated():
    def loss(scores: torch.Tensor) -> torch.Tensor:
        return expected_loss(scores, DATA, NOISE)

    hessian = torch.autograd.functional.hessian(loss, optimal_scores(DATA, NOISE))
    stated = torch.diag(hessian_diagonal(DATA, NOISE).flatten())
    assert torch.allclose(hessian.view(stated.shape), stated, atol=1e-12)


def test_the_covariance_is_that_of_all_draws_enumerated():
    scores = optimal_scores(DATA, NOISE)
    enumerated = torch.zeros(NUM_DOCUMENTS, NUM_LABELS, NUM_LABELS, dtype=torch.float64)
    every = itertools.product(range(NUM_DOCUMENTS), range(NUM_LABELS), range(NUM_LABELS))
    for document, label, drawn in every:
        gradient = torch.zeros(NUM_LABELS, dtype=torch.float64)
        gradient[label] -= torch.sigmoid(-scores[document, label])
        gradient[drawn] += torch.sigmoid(scores[document, drawn])
        gradient *= NUM_DOCUMENTS
        chance = DATA[document, label] * NOISE[document, drawn] / NUM_DOCUMENTS
        enumerated[document] += chance * torch.outer(gradient, gradient)
    assert torch.allclose(gradient_covariance(DATA, NOISE), enumerated, atol=1e-12)


@pytest.mark.parametrize(
    "noise", [NOISE, DATA, noise_between(DATA, 0.0)], ids=["random", "data", "uniform"]
)
def test_the_ratio_is_the_trace_and_what_the_loss_of_training_gives(noise):
    alpha = hessian_diagonal(DATA, noise)
    covariance = gradient_covariance(DATA, noise)
    trace = (covariance.diagonal(dim1=1, dim2=2) / alpha).sum()
    closed = signal_to_noise(DATA, noise)
    assert closed == pytest.approx(float(1 / trace))
    generator = torch.Generator().manual_seed(0)
    assert measured_signal_to_noise(DATA, noise, 200_000, generator) == pytest.approx(closed, 0.03)


def test_the_ratio_is_highest_where_noise_is_the_data_distribution():
    """Theorem 2."""
    exponents = [0.0, 0.5, 0.9, 1.0, 1.1, 1.5, 2.0]
    found = sweep(DATA, exponents)
    assert max(found) == found[exponents.index(1.0)]
    assert found == sorted(found[:4]) + sorted(found[4:], reverse=True)
    assert max(found) == pytest.approx(1 / (NUM_DOCUMENTS**2 * (NUM_LABELS - 1)))


def test_no_noise_beats_the_data_distribution():
    best = signal_to_noise(DATA, DATA)
    others = [random_table(NUM_DOCUMENTS, NUM_LABELS, seed) for seed in range(2, 50)]
    assert all(signal_to_noise(DATA, noise) < best for noise in others)
