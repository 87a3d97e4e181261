"""The losses of linear scorers against closed forms, the softmax, and one another."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch.nn.functional import cross_entropy, logsigmoid

from longtail.models.errors import DataError
from longtail.training.learning.distributions import AllLabels, Frequency, Shared, Uniform
from longtail.training.learning.document_distributions import TreeNegatives
from longtail.training.learning.objectives import PairObjective
from longtail.training.learning.sampling import Pairs, constant, importance
from longtail.training.losses import DECOUPLED_LOSSES
from research.experiments.adversarial.losses import (
    AugmentAndReduce,
    NoiseContrast,
    one_versus_each_loss,
)
from research.experiments.adversarial.signal_to_noise import TableSampler, random_table

BATCH, L, M = 5, 7, 3
LABELS = torch.tensor([0, 6, 2, 2, 4])
NOISE = random_table(BATCH, L, seed=0)
ROWS = torch.arange(BATCH)


def scores(seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(BATCH, L, generator=generator, dtype=torch.float64).requires_grad_()


def pairs(*, excluded: bool = False) -> Pairs:
    forbidden = LABELS.unsqueeze(1) if excluded else LABELS.new_empty(BATCH, 0)
    return Pairs(ROWS, LABELS, forbidden, ROWS.unsqueeze(1).float())


def tree(num_draws: int = M) -> TreeNegatives:
    return TreeNegatives(TableSampler(NOISE), num_draws)


def scorer(table: torch.Tensor):
    return lambda labels: table.gather(1, labels.expand(len(table), -1))


def value(objective, table: torch.Tensor, given: Pairs, seed: int = 0) -> torch.Tensor:
    return objective(given, scorer(table), torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("is_shared", [False, True])
def test_without_regulariser_negative_sampling_is_the_decoupled_logistic_loss(is_shared):
    q = Shared(Uniform(L, M)) if is_shared else tree()
    given, table = pairs(excluded=is_shared), scores()
    same = PairObjective(q, constant, DECOUPLED_LOSSES["logistic"])
    found, wanted = (float(value(each, table, given).detach()) for each in (NoiseContrast(q), same))
    assert found == pytest.approx(wanted)


@pytest.mark.parametrize("log_z", [None, 0.0, 1.3])
def test_the_loss_is_equation_6_written_out(log_z):
    table, regulariser = scores().detach(), 0.3
    found = value(NoiseContrast(tree(), regulariser, log_z), table, pairs())
    drawn = tree().draw(pairs(), torch.Generator().manual_seed(0)).labels
    log_noise, expected = NOISE.float().log().double(), 0.0
    for row, label in enumerate(LABELS):
        for y, sign, weight in [(label, 1, 1.0), *((y, -1, 1 / M) for y in drawn[row])]:
            learned, base = table[row, y], log_noise[row, y]
            if log_z is None:
                ratio, corrected = learned, learned + base
            else:
                ratio, corrected = learned - log_z - base, learned
            expected += weight * (-logsigmoid(sign * ratio) + regulariser * corrected**2) / BATCH
    assert float(found) == pytest.approx(float(expected))


@pytest.mark.parametrize("log_z", [None, 0.0, 1.3])
def test_gradients_are_those_of_the_closed_form(log_z):
    table, regulariser = scores(), 0.3
    value(NoiseContrast(tree(), regulariser, log_z), table, pairs()).backward()
    drawn = tree().draw(pairs(), torch.Generator().manual_seed(0)).labels
    base = NOISE.float().log().double()
    ratios = table.detach() - (0 if log_z is None else log_z + base)
    pull = 2 * regulariser * (table.detach() + (base if log_z is None else 0))
    stated = torch.zeros(BATCH, L, dtype=torch.float64)
    of_drawn = (ratios.sigmoid() + pull).gather(1, drawn) / M
    stated.scatter_add_(1, drawn, of_drawn)
    stated[ROWS, LABELS] += (pull - (-ratios).sigmoid())[ROWS, LABELS]
    assert torch.allclose(table.grad, stated / BATCH, atol=1e-12)


def test_nce_is_negative_sampling_whose_scores_are_the_corrected_ones():
    table, base = scores().detach(), NOISE.float().log().double()
    nce = value(NoiseContrast(tree(), 0.2, log_normaliser=0.0), table + base, pairs())
    assert float(nce) == pytest.approx(float(value(NoiseContrast(tree(), 0.2), table, pairs())))


@pytest.mark.parametrize(
    "make",
    [
        lambda: NoiseContrast(tree(), 0.3),
        lambda: NoiseContrast(tree(), 0.3, log_normaliser=1.3),
        lambda: PairObjective(Uniform(L, M), importance, one_versus_each_loss),
    ],
    ids=["negative sampling", "nce", "one versus each"],
)
def test_gradients_are_right(make):
    def loss(table: torch.Tensor) -> torch.Tensor:
        return value(make(), table, pairs(excluded=True))

    assert torch.autograd.gradcheck(loss, scores())


@pytest.mark.parametrize(("regulariser", "log_z"), [(0.1, None), (0.0, 0.0)])
def test_positives_that_are_never_drawn_are_refused_where_log_p_n_is_needed(regulariser, log_z):
    q = Frequency.of(np.array([1, 1, 0, 1, 1, 1, 1]), 1.0, M, "cpu")
    with pytest.raises(DataError, match=r"label 2 is never drawn.*wider support"):
        value(NoiseContrast(q, regulariser, log_z), scores(), pairs())
    assert value(NoiseContrast(q), scores(), pairs()).isfinite()


def test_one_versus_each_bounds_the_softmax():
    table = scores().detach()
    full = PairObjective(AllLabels(L), importance, one_versus_each_loss)
    bound = value(full, table, pairs(excluded=True))
    by_hand = sum(
        -logsigmoid(table[row, label] - table[row, y])
        for row, label in enumerate(LABELS)
        for y in range(L)
        if y != label
    )
    assert float(bound) == pytest.approx(float(by_hand) / BATCH)
    assert bound > cross_entropy(table, LABELS)


def test_draws_estimate_the_one_versus_each_bound():
    table = scores().detach()
    full, drawn = (
        PairObjective(q, importance, one_versus_each_loss)
        for q in (AllLabels(L), Uniform(L, 20_000))
    )
    estimate, exact = (value(each, table, pairs(excluded=True)) for each in (drawn, full))
    assert float(estimate) == pytest.approx(float(exact), rel=0.02)


def augmented(q, truth: csr_array | None = None) -> AugmentAndReduce:
    if truth is None:
        truth = csr_array((np.ones(BATCH, dtype=np.float32), (ROWS, LABELS)), shape=(BATCH, L))
    return AugmentAndReduce.of(q, truth, "cpu")


def test_augment_and_reduce_bounds_the_softmax_and_reaches_it_with_its_gradient():
    table, same = scores(), scores()
    softmax = cross_entropy(same, LABELS)
    softmax.backward()
    objective = augmented(AllLabels(L))
    with torch.no_grad():
        bounds = [float(value(objective, table, pairs(excluded=True))) for _ in range(300)]
    assert (np.diff(bounds) < 1e-6).all()
    assert bounds[0] > bounds[-1] > float(softmax.detach()) - 1e-6
    assert bounds[-1] == pytest.approx(float(softmax.detach()), rel=1e-3)
    value(objective, table, pairs(excluded=True)).backward()
    assert torch.allclose(table.grad, same.grad, atol=1e-2)


def test_eta_moves_by_the_share_of_its_epoch():
    table, objective = scores().detach(), augmented(AllLabels(L))
    rest = torch.ones(BATCH, L, dtype=torch.bool)
    rest[ROWS, LABELS] = False
    totals = ((table - table[ROWS, LABELS].unsqueeze(1)).exp() * rest).sum(dim=1)
    eta = torch.ones(BATCH, dtype=torch.float64)
    for epoch in (1, 2):
        table.requires_grad_()
        value(objective, table, pairs(excluded=True))
        share = (1 + epoch) ** -0.9
        eta = (1 - share) * eta + share * totals
        assert torch.allclose(objective.log_eta.exp().double(), eta, rtol=1e-5, atol=1e-8)


def test_eta_belongs_to_the_pair_of_document_and_label():
    entries = ([1, 0, 1, 0], [6, 2, 0, 5])  # not in order
    truth = csr_array((np.ones(4, dtype=np.float32), entries), shape=(2, L))
    objective = augmented(AllLabels(L), truth)
    given = Pairs(torch.tensor([1]), torch.tensor([6]), torch.tensor([[6]]))
    table = torch.zeros(1, L, requires_grad=True)
    objective(given, scorer(table), torch.Generator())
    assert objective.keys.tolist() == [2, 5, L, L + 6]
    assert (objective.log_eta != 0).tolist() == [False, False, False, True]
    assert objective.state()["num_seen"].tolist() == [1]
