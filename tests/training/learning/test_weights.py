"""Weights against their formulas, and the implicit losses of Table 2 that they lead to."""

import math

import numpy as np
import pytest
import torch

from longtail.training.learning.distributions import (
    AllLabels,
    Frequency,
    Shared,
    Uniform,
    WithinBatch,
)
from longtail.training.learning.sampling import (
    Negatives,
    Pairs,
    TargetMargin,
    adaptive,
    constant,
    equalised,
    importance,
    logit_adjusted,
    relative,
)
from longtail.training.losses import softmax_loss

COUNTS = np.array([8, 4, 2, 1, 1])
PRIOR = torch.tensor([0.5, 0.25, 0.125, 0.0625, 0.0625])
L = 5
WEIGHTS = {
    "constant": constant,
    "importance": importance,
    "relative": relative,
    "tail": TargetMargin(PRIOR.log(), logit_adjusted),
    "equalised": TargetMargin(PRIOR.log(), equalised),
    "adaptive": TargetMargin(PRIOR.log(), adaptive),
}


def pairs_of(labels: list[int], *, is_excluded: bool = True) -> Pairs:
    positives = torch.tensor(labels)
    excluded = positives.unsqueeze(1)[:, : int(is_excluded)]
    return Pairs(torch.arange(len(labels)), positives, excluded)


def draw(name: str, pairs: Pairs, m: int = 6) -> Negatives:
    distribution = {
        "uniform": Uniform(L, m),
        "frequency": Frequency.of(COUNTS, 1.0, m, "cpu"),
        "shared": Shared(Frequency.of(COUNTS, 1.0, m, "cpu")),
        "within_batch": WithinBatch(PRIOR.log()),
        "all": AllLabels(L),
    }[name]
    return distribution.draw(pairs, torch.Generator().manual_seed(1))


def expected(name: str, m: int, q: float, q_y: float, pi_y: float, pi: float) -> float:
    return {
        "constant": 1 / m,
        "importance": 1 / (m * q),
        "relative": q_y / q,
        "tail": pi / (m * q * pi_y),
        "equalised": pi / (m * q),
        "adaptive": pi_y**-0.25 / (m * q),
    }[name]


@pytest.mark.parametrize("q_name", ["uniform", "frequency", "shared", "within_batch", "all"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_equal_their_formulas(name, q_name):
    pairs = pairs_of([0, 1, 1, 4])
    negatives = draw(q_name, pairs)
    log_w = WEIGHTS[name](negatives)
    base = torch.full((L,), 1 / L) if q_name in ("uniform", "all") else PRIOR
    for row, y in enumerate(pairs.labels.tolist()):
        labels = negatives.labels.expand_as(log_w)[row]
        m = int(negatives.is_drawn[row].sum())
        for place, label in enumerate(labels.tolist()):
            if not negatives.is_drawn[row, place]:
                assert log_w[row, place] == -math.inf
                continue
            q = float(base[label] / (1 - base[y]))
            w = expected(name, m, q, float(base[y]), float(PRIOR[y]), float(PRIOR[label]))
            assert float(log_w[row, place].exp()) == pytest.approx(w, rel=1e-5)


@pytest.mark.parametrize("q_name", ["uniform", "frequency"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_table_2_the_margins_that_sampling_implies(name, q_name):
    """rho = m q w. Constant weights have pi_y' / (1 - pi_y): the paper leaves the divisor out."""
    m, y = 6, 1
    negatives = draw(q_name, pairs_of([y] * 300), m)
    rho = (m * negatives.log_q.exp() * WEIGHTS[name](negatives).exp()).flatten()
    labels = negatives.labels.flatten()
    base = torch.full((L,), 1 / L) if q_name == "uniform" else PRIOR
    margins = {
        "constant": base / (1 - base[y]),
        "importance": torch.ones(L),
        "relative": (m * base[y]).expand(L),
        "tail": PRIOR / PRIOR[y],
        "equalised": PRIOR,
        "adaptive": (PRIOR[y] ** -0.25).expand(L),
    }
    torch.testing.assert_close(rho, margins[name][labels])


@pytest.mark.parametrize(
    ("name", "rho"),
    [
        ("importance", torch.ones(L, L)),
        ("tail", PRIOR[None, :] / PRIOR[:, None]),
        ("equalised", PRIOR.expand(L, -1)),
        ("adaptive", (PRIOR**-0.25)[:, None].expand(-1, L)),
    ],
)
def test_over_all_labels_a_target_margin_gives_the_pairwise_margin_loss(name, rho):
    """Eq. 4 and 6: the logit-adjusted, the equalised and the adaptive loss."""
    scores = torch.randn(4, L, generator=torch.Generator().manual_seed(0))
    pairs = pairs_of([0, 2, 4, 2])
    negatives = draw("all", pairs)
    positive = scores.gather(1, pairs.labels.unsqueeze(1)).squeeze(1)
    loss = softmax_loss(positive, scores, WEIGHTS[name](negatives))
    rows = [
        math.log1p(sum(float(rho[y, z] * (f[z] - f[y]).exp()) for z in range(L) if z != y))
        for f, y in zip(scores, pairs.labels.tolist(), strict=True)
    ]
    assert float(loss) == pytest.approx(sum(rows) / 4, rel=1e-5)


def test_a_label_without_training_documents_has_tail_weight_0():
    log_prior = torch.tensor([0.5, 0.5, 0.0, 0.0, 0.0]).log()
    negatives = draw("uniform", pairs_of([0] * 20))
    log_w = TargetMargin(log_prior, logit_adjusted)(negatives)
    assert torch.equal(log_w == -math.inf, negatives.labels >= 2)


def test_a_pair_without_negatives_has_no_nan():
    negatives = draw("within_batch", pairs_of([1, 1]))
    assert not negatives.is_drawn.any()
    for weight in WEIGHTS.values():
        assert (weight(negatives) == -math.inf).all()
