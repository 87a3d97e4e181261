"""Ordered losses against sorting, and the theorems of Reddi et al. 2019 on small label sets."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from longtail.training.losses import (
    OrderedLoss,
    exponential,
    hinge,
    logistic_base_2,
    mining_weights,
    ramp,
    squared_hinge,
)

K = 7  # labels, the positive included
CONVEX = {
    "hinge": hinge,
    "logistic_base_2": logistic_base_2,
    "squared_hinge": squared_hinge,
    "exponential": exponential,
}
PHI = CONVEX | {"ramp": ramp(0.8)}
FORMS = ("pairwise", "binary")
scores = st.lists(st.floats(-3, 3), min_size=K, max_size=K)
every_loss = pytest.mark.parametrize(
    ("phi", "form"), list(itertools.product(PHI, FORMS)), ids=lambda x: x
)


def value(phi: str, form: str, v: list[float] | Tensor, theta: list[float] | Tensor) -> float:
    """The loss of one pair; v_0 is the positive's score."""
    v = torch.as_tensor(v, dtype=torch.float64)
    theta = torch.as_tensor(theta, dtype=torch.float64).reshape(1, -1)
    return float(OrderedLoss(PHI[phi], form)(v[:1], v[None, 1:], theta))


def naive(phi: str, form: str, v: list[float], theta: list[float]) -> float:
    def cost(u: float) -> float:
        return float(PHI[phi](torch.tensor(u, dtype=torch.float64)))

    ordered = sorted(v[1:], reverse=True)
    base = v[0] if form == "pairwise" else 0.0
    total = sum(weight * cost(base - u) for weight, u in zip(theta, ordered, strict=False))
    return total if form == "pairwise" else total + cost(v[0])


def owl_weights(vartheta: Sequence[float], num_sampled: int) -> list[float]:
    """theta of stochastic negative mining: the chance to be drawn and have rank j there."""
    others = K - 1
    subsets = math.comb(others, num_sampled)
    return [
        sum(
            weight * math.comb(above, j) * math.comb(others - 1 - above, num_sampled - 1 - j)
            for j, weight in enumerate(vartheta)
        )
        / subsets
        for above in range(others)
    ]


@every_loss
@given(scores, st.lists(st.floats(0, 2), min_size=1, max_size=K - 1))
def test_ordered_losses_equal_a_sort(phi, form, v, theta):
    assert value(phi, form, v, theta) == pytest.approx(naive(phi, form, v, theta), abs=1e-9)


def test_known_losses_are_ordered_losses():
    v = [0.2, 1.0, -0.5, 0.9, 0.1, -2.0, 0.3]
    margins = [v[0] - u for u in v[1:]]
    crammer_singer = max(0.0, 1 - min(margins))
    weston_watkins = sum(max(0.0, 1 - u) for u in margins)
    lee = max(0.0, 1 - v[0]) + sum(max(0.0, 1 + u) for u in v[1:])
    assert value("hinge", "pairwise", v, [1.0]) == pytest.approx(crammer_singer)
    assert value("hinge", "pairwise", v, [1.0] * 6) == pytest.approx(weston_watkins)
    assert value("hinge", "binary", v, [1.0] * 6) == pytest.approx(lee)


@every_loss
def test_the_loss_of_a_batch_is_the_mean_of_its_pairs(phi, form):
    v = torch.randn(4, K, generator=torch.Generator().manual_seed(0))
    theta = torch.tensor([[1.0, 0.5, 0.25]])
    loss = OrderedLoss(PHI[phi], form)
    each = [value(phi, form, row, theta) for row in v]
    assert float(loss(v[:, 0], v[:, 1:], theta)) == pytest.approx(sum(each) / 4, rel=1e-5)


@every_loss
def test_left_out_negatives_cost_nothing(phi, form):
    v = torch.tensor([0.1, 0.4, -math.inf, 0.3], requires_grad=True)
    loss = OrderedLoss(PHI[phi], form)(v[:1], v[None, 1:], torch.tensor([[0.5, 0.5, 0.5]]))
    loss.backward()
    assert float(loss.detach()) == pytest.approx(value(phi, form, [0.1, 0.4, 0.3], [0.5, 0.5]))
    assert v.grad.isfinite().all()


@every_loss
def test_gradients_are_those_of_finite_differences(phi, form):
    v = torch.tensor([[0.3, 0.1, -0.4, 0.5], [0.25, 1.4, 0.05, -0.9]], dtype=torch.float64)
    v.requires_grad_()
    theta = torch.tensor([[1.0, 0.4]], dtype=torch.float64)
    loss = OrderedLoss(PHI[phi], form)
    assert torch.autograd.gradcheck(lambda v: loss(v[:, 0], v[:, 1:], theta), v)


@pytest.mark.parametrize(("phi", "form"), list(itertools.product(CONVEX, FORMS)))
@given(scores, scores, st.floats(0, 1), st.lists(st.floats(0, 2), min_size=1, max_size=K - 1))
def test_theorem_2_convex_where_theta_does_not_rise(phi, form, a, b, share, theta):
    theta = sorted(theta, reverse=True)
    between = [share * x + (1 - share) * y for x, y in zip(a, b, strict=True)]
    chord = share * value(phi, form, a, theta) + (1 - share) * value(phi, form, b, theta)
    assert value(phi, form, between, theta) <= chord + 1e-9 * (1 + chord)


def test_theorem_2_a_rising_theta_is_not_convex():
    ends = value("hinge", "pairwise", [0, 1, -1], [0.0, 1.0])
    assert value("hinge", "pairwise", [0, -1, 1], [0.0, 1.0]) == ends
    assert value("hinge", "pairwise", [0, 0, 0], [0.0, 1.0]) > ends


@every_loss
@given(scores, st.integers(1, K - 1), st.floats(0, 1))
def test_theorem_3_ordered_losses_bound_the_retrieval_loss(phi, form, v, k, rest):
    """The binary one bounds it twice if phi is convex; the ramp loss only once (as derived)."""
    theta = [1 / k] * k + [rest / k] * (K - 1 - k)
    is_missed = sum(u >= v[0] for u in v[1:]) >= k
    factor = 2 if form == "binary" and phi in CONVEX else 1
    assert value(phi, form, v, theta) >= factor * is_missed - 1e-9


def test_theorem_3_the_binary_ramp_loss_does_not_bound_it_twice():
    v = [0.9, 1.0, -5.0]
    assert value("ramp", "binary", v, [1.0]) == pytest.approx(1.0)


@every_loss
@pytest.mark.parametrize("num_sampled", [2, 4, 6])
def test_lemma_2_minings_expectation_is_its_ordered_loss(phi, form, num_sampled):
    v = [0.4, 1.1, -0.3, 0.45, 0.0, -1.2, 0.8]
    vartheta = mining_weights(2, num_labels=K, num_sampled=num_sampled)
    subsets = list(itertools.combinations(v[1:], num_sampled))
    mean = np.mean([value(phi, form, [v[0], *subset], vartheta) for subset in subsets])
    theta = owl_weights(vartheta, num_sampled)
    assert mean == pytest.approx(value(phi, form, v, theta), rel=1e-6)


@pytest.mark.parametrize(("k", "num_sampled"), [(1, 3), (2, 4), (3, 3), (2, 6)])
def test_lemma_2_theta_of_top_k_mining(k, num_sampled):
    """It never rises, is 1/k up to k and keeps the sum; it is 0 at the end, unlike as printed."""
    vartheta = mining_weights(k, num_labels=K, num_sampled=num_sampled)
    theta = owl_weights(vartheta, num_sampled)
    assert theta[:k] == pytest.approx([1 / k] * k)
    assert all(a >= b - 1e-12 for a, b in itertools.pairwise(theta))
    assert sum(theta) == pytest.approx(sum(vartheta))
    assert sum(vartheta) == pytest.approx((K - 1) / num_sampled)
    bound = num_sampled * vartheta[0] * sum(vartheta) / (K - 1)
    assert sum(x * x for x in theta) <= bound + 1e-9
    last_positive = K - 1 - (num_sampled - k)
    assert [x > 0 for x in theta] == [True] * last_positive + [False] * (num_sampled - k)
