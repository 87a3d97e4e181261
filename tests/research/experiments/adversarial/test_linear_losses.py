"""The losses of linear scorers against closed forms, the softmax, and one another."""

import itertools
from functools import cache
from typing import get_args

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch.nn.functional import cross_entropy, logsigmoid

from longtail.models.errors import DataError
from longtail.models.scorers.linear import LinearModel
from longtail.training.label_tree.fit import fit_tree
from longtail.training.learning.distributions import AllLabels, Frequency, Shared, Uniform
from longtail.training.learning.document_distributions import TreeNegatives
from longtail.training.learning.objectives import PairObjective
from longtail.training.learning.sampling import Pairs, constant, importance
from longtail.training.linear.trainer import LinearOptions, LinearTrainer, train_linear
from longtail.training.losses import DECOUPLED_LOSSES
from research.experiments.adversarial import measures
from research.experiments.adversarial.corrections import PriorCorrection
from research.experiments.adversarial.losses import (
    AugmentAndReduce,
    NoiseContrast,
    one_versus_each_loss,
)
from research.experiments.adversarial.measures import corrected_log_probs, measure_linear
from research.experiments.adversarial.methods import MethodName, make_method
from research.experiments.adversarial.signal_to_noise import (
    TableSampler,
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


NUM_DOCUMENTS, NUM_LABELS = 3, 5
COUNTS = (200 * random_table(NUM_DOCUMENTS, NUM_LABELS, seed=0, spread=0.8)).round().int().numpy()
METHODS = get_args(MethodName)


def tables() -> tuple[np.ndarray, csr_array, np.ndarray]:
    """Each of three documents many times, every time with one of its labels, and log p_D."""
    documents, labels = (np.repeat(x.flatten(), COUNTS.flatten()) for x in np.indices(COUNTS.shape))
    vectors = np.eye(NUM_DOCUMENTS, dtype=np.float32)[documents]  # a score for each of all entries
    ones = np.ones(len(labels), dtype=np.float32)
    truth = csr_array((ones, (np.arange(len(labels)), labels)), (len(labels), NUM_LABELS))
    return vectors, truth, np.log(COUNTS / COUNTS.sum(axis=1, keepdims=True))


VECTORS, TRUTH, LOG_DATA = tables()
TREE = fit_tree(VECTORS, TRUTH, num_components=2, regulariser=0.1).tree
ONCE = np.eye(NUM_DOCUMENTS, dtype=np.float32)


@cache
def trained(name: str) -> tuple[LinearModel, object]:
    num_negatives = 1 if name == "softmax" else 20
    method = make_method(name, VECTORS, TRUTH, num_negatives=num_negatives, tree=TREE)
    options = LinearOptions(1.0, batch_size=TRUTH.nnz, epochs=80, exclude=method.exclude)
    return train_linear(VECTORS, TRUTH, method.objective, options), method.correction


def log_probs(model: LinearModel, correction) -> torch.Tensor:
    return corrected_log_probs(model, torch.from_numpy(ONCE), correction)


@pytest.mark.parametrize("name", [x for x in METHODS if x != "one_versus_each"])
def test_the_corrected_scores_of_tables_are_log_p_data_whatever_negatives_were_drawn(name):
    """Theorem 1 of Bamler & Mandt (2020), by the trainer itself."""
    found = log_probs(*trained(name))
    np.testing.assert_allclose(found, LOG_DATA, atol=0.2)


def test_before_the_first_step_the_adversarial_method_is_the_tree_as_a_classifier():
    method = make_method("adversarial", VECTORS, TRUTH, tree=TREE)
    untrained = LinearTrainer(VECTORS, TRUTH, method.objective, LinearOptions()).model()
    found = measure_linear(untrained, VECTORS, TRUTH, method.correction)
    features = TREE.project(torch.from_numpy(VECTORS))
    documents, labels = (torch.from_numpy(x).long() for x in TRUTH.nonzero())
    total = TREE.log_likelihood(features, documents, labels, torch.ones(len(labels)))
    assert found.log_likelihood == pytest.approx(total / TRUTH.nnz, rel=1e-5)


def test_the_softmax_method_takes_the_cross_entropy():
    method = make_method("softmax", VECTORS, TRUTH)
    rng = np.random.default_rng(0)
    trainer = LinearTrainer(
        VECTORS, TRUTH, method.objective, LinearOptions(batch_size=TRUTH.nnz, exclude="positive")
    )
    trainer._rows.values.copy_(torch.from_numpy(rng.standard_normal((NUM_LABELS, 4))))
    model = trainer.model()
    scores = torch.from_numpy(VECTORS @ model.weight.T + model.bias)
    expected = cross_entropy(scores, torch.from_numpy(TRUTH.indices).long())
    assert trainer.step() == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("num_scores", [1, 2**24])
def test_models_are_judged_as_loops_judge_them(monkeypatch, num_scores):
    monkeypatch.setattr(measures, "_MAX_SCORES", num_scores)
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((20, 3)).astype(np.float32)
    truth = csr_array((rng.random((20, 6)) < 0.3).astype(np.float32))
    weight = rng.standard_normal((6, 3)).astype(np.float32)
    model = LinearModel(weight, rng.standard_normal(6).astype(np.float32), np.arange(6))
    prior = rng.dirichlet(np.ones(6)).astype(np.float32)
    total, num_right, num_documents = 0.0, 0, 0
    for vector, row in zip(vectors, truth.toarray(), strict=True):
        scores = weight @ vector + model.bias + np.log(prior)
        own = scores - np.log(np.exp(scores).sum())
        total += own[row > 0].sum()
        num_right += row[np.argmax(scores)] > 0
        num_documents += row.any()
    found = measure_linear(model, vectors, truth, PriorCorrection(torch.from_numpy(np.log(prior))))
    assert found.log_likelihood == pytest.approx(total / truth.nnz, rel=1e-4)
    assert found.accuracy == pytest.approx(num_right / num_documents)
    assert num_documents < 20


@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns_documents_with_several_labels(name):
    rng = np.random.default_rng(2)
    groups = np.arange(80) % 8
    centres = 3 * rng.standard_normal((8, 6))
    vectors = (centres[groups] + rng.standard_normal((80, 6))).astype(np.float32)
    labels = np.concatenate([groups, (groups + 8)])  # two labels a document
    documents = np.tile(np.arange(80), 2)
    truth = csr_array((np.ones(160, dtype=np.float32), (documents, labels)), (80, 16))
    tree = fit_tree(vectors, truth, num_components=4, regulariser=10.0).tree
    num_negatives = 1 if name == "softmax" else 3
    method = make_method(name, vectors, truth, num_negatives=num_negatives, tree=tree)
    options = LinearOptions(0.5, 40, 20, exclude=method.exclude)
    model = train_linear(vectors, truth, method.objective, options)
    found = measure_linear(model, vectors, truth, method.correction)
    assert found.accuracy > 0.95
    assert -1.8 < found.log_likelihood < np.log(0.5)  # at most half for each of two labels


NUM_DRAWN, NUM_CLASSES = 3, 4
DATA = random_table(NUM_DRAWN, NUM_CLASSES, seed=0)
P_NOISE = random_table(NUM_DRAWN, NUM_CLASSES, seed=1)


def test_corrected_scores_of_the_minimum_are_log_p_data_plus_a_constant():
    """Theorem 1, with the minimum found by descent from zero."""
    scores = torch.zeros_like(DATA, requires_grad=True)
    descent = torch.optim.LBFGS([scores], max_iter=500, tolerance_grad=1e-12, tolerance_change=0)

    def closure() -> torch.Tensor:
        descent.zero_grad()
        loss = expected_loss(scores, DATA, P_NOISE)
        loss.backward()
        return loss

    descent.step(closure)
    found = (scores.detach() + P_NOISE.log()).log_softmax(dim=1)
    assert torch.allclose(found, DATA.log(), atol=1e-6)
    assert not torch.allclose(scores.detach().log_softmax(dim=1), DATA.log(), atol=0.1)
    assert torch.allclose(scores.detach(), optimal_scores(DATA, P_NOISE), atol=1e-6)


def test_the_hessian_is_diagonal_and_as_stated():
    def loss(scores: torch.Tensor) -> torch.Tensor:
        return expected_loss(scores, DATA, P_NOISE)

    hessian = torch.autograd.functional.hessian(loss, optimal_scores(DATA, P_NOISE))
    stated = torch.diag(hessian_diagonal(DATA, P_NOISE).flatten())
    assert torch.allclose(hessian.view(stated.shape), stated, atol=1e-12)


def test_the_covariance_is_that_of_all_draws_enumerated():
    scores = optimal_scores(DATA, P_NOISE)
    enumerated = torch.zeros(NUM_DRAWN, NUM_CLASSES, NUM_CLASSES, dtype=torch.float64)
    every = itertools.product(range(NUM_DRAWN), range(NUM_CLASSES), range(NUM_CLASSES))
    for document, label, drawn in every:
        gradient = torch.zeros(NUM_CLASSES, dtype=torch.float64)
        gradient[label] -= torch.sigmoid(-scores[document, label])
        gradient[drawn] += torch.sigmoid(scores[document, drawn])
        gradient *= NUM_DRAWN
        chance = DATA[document, label] * P_NOISE[document, drawn] / NUM_DRAWN
        enumerated[document] += chance * torch.outer(gradient, gradient)
    assert torch.allclose(gradient_covariance(DATA, P_NOISE), enumerated, atol=1e-12)


@pytest.mark.parametrize(
    "noise", [P_NOISE, DATA, noise_between(DATA, 0.0)], ids=["random", "data", "uniform"]
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
    assert max(found) == pytest.approx(1 / (NUM_DRAWN**2 * (NUM_CLASSES - 1)))


def test_no_noise_beats_the_data_distribution():
    best = signal_to_noise(DATA, DATA)
    others = [random_table(NUM_DRAWN, NUM_CLASSES, seed) for seed in range(2, 50)]
    assert all(signal_to_noise(DATA, noise) < best for noise in others)
