"""The methods of linear scorers: what they converge to, and how they are judged."""

from functools import cache
from typing import get_args

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch.nn.functional import cross_entropy

from longtail.models.scorers.linear import LinearModel
from longtail.training.label_tree.fit import fit_tree
from longtail.training.linear.trainer import LinearOptions, LinearTrainer, train_linear
from research.experiments.adversarial import measures
from research.experiments.adversarial.corrections import PriorCorrection
from research.experiments.adversarial.measures import corrected_log_probs, measure_linear
from research.experiments.adversarial.methods import MethodName, make_method
from research.experiments.adversarial.signal_to_noise import random_table

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
