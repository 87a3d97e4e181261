"""Margin losses: their values, that they fall, bound the step and have the right gradient."""

import math

import pytest
import torch

from longtail.training.losses import (
    contrastive_negative,
    contrastive_positive,
    exponential,
    hinge,
    logistic,
    logistic_base_2,
    ramp,
    squared_hinge,
)

SURROGATES = {
    "hinge": hinge,
    "logistic_base_2": logistic_base_2,
    "squared_hinge": squared_hinge,
    "exponential": exponential,
    "ramp": ramp(0.7),
}
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
