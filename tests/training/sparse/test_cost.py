"""The cost of frequent labels' errors, where the configuration leaves it to the dev split."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.training.configuration.sections import SparseConfig
from longtail.training.fitting import DevDocuments
from longtail.training.sparse import cost
from longtail.training.sparse.cost import with_cost_chosen
from longtail.training.sparse.fit import fit_sparse_model
from longtail.training.sparse.tfidf import fit_tfidf

NUM_DOCUMENTS, NUM_LABELS = 300, 14
RARE = NUM_LABELS - 1
USELESS = 1e-6
"""A cost with which all weights are pruned."""


def documents(seed: int) -> tuple[list[str], csr_array]:
    """Documents of one or two labels, each with a word of its own among others; one is rare."""
    rng = np.random.default_rng(seed)
    truth = np.zeros((NUM_DOCUMENTS, NUM_LABELS), dtype=np.float32)
    for _ in range(2):
        truth[np.arange(NUM_DOCUMENTS), rng.integers(0, RARE, NUM_DOCUMENTS)] = 1
    truth[:5, RARE] = 1
    others = rng.integers(0, 30, (NUM_DOCUMENTS, 6))
    texts = [
        " ".join([*(f"label{x}" for x in np.flatnonzero(own)), *(f"word{x}" for x in some)])
        for own, some in zip(truth, others, strict=True)
    ]
    return texts, csr_array(truth)


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    """Returns a function that chooses a cost, and the model with each of some costs."""
    texts, truth = documents(0)
    tfidf, features = fit_tfidf(texts, SparseConfig())
    dev_texts, dev_truth = documents(1)
    dev = DevDocuments(tfidf.transform(dev_texts), dev_truth)

    def fit(config):
        folder = tmp_path_factory.mktemp("fit")
        return fit_sparse_model(tfidf, features, truth, config, seed=1, folder=folder)

    def choose(num_dev=NUM_DOCUMENTS, folder=None, **given):
        config = SparseConfig.model_validate(given)
        some = DevDocuments(dev.features[:num_dev], dev.truth[:num_dev]) if num_dev else None
        folder = folder or tmp_path_factory.mktemp("chosen")
        return with_cost_chosen(fit(config), features, truth, some, config, seed=1, folder=folder)

    return fit, choose


def same(first, second) -> bool:
    return (first.weights != second.weights).nnz == 0 and np.array_equal(first.bias, second.bias)


def test_a_cost_that_is_given_stays_and_nothing_is_trained(problem, tmp_path):
    fit, choose = problem
    model, config = choose(folder=tmp_path, cost=3.0)
    assert config.cost == 3.0 and same(model, fit(config)) and not list(tmp_path.iterdir())


def test_the_low_cost_is_taken_where_it_ranks_better(problem, monkeypatch, tmp_path):
    fit, choose = problem
    monkeypatch.setattr(cost, "LOW_COST", 4.0)
    monkeypatch.setattr(cost, "DEFAULT_COST", USELESS)
    monkeypatch.setattr("longtail.training.sparse.svm.DEFAULT_COST", USELESS)
    found = [choose(folder=tmp_path) for _ in range(2)]  # the second reads what the first kept
    for model, config in found:
        assert config == SparseConfig(cost=4.0)
        assert same(model, fit(config)) and np.array_equal(model.labels, np.arange(NUM_LABELS))
    for num_dev in (0, 99):  # none, and too few
        model, config = choose(num_dev)
        assert config == SparseConfig(cost=USELESS) and same(model, fit(config))


def test_the_default_stays_where_the_low_cost_is_worse(problem, monkeypatch):
    fit, choose = problem
    monkeypatch.setattr(cost, "LOW_COST", USELESS)
    model, config = choose()
    assert config == SparseConfig(cost=1.0) and same(model, fit(config))


@pytest.mark.parametrize(("gains", "chosen"), [((0.5, -0.45), 1.0), ((0.5, -0.1), 0.5)])
def test_a_gain_must_be_beyond_chance(problem, monkeypatch, gains, chosen):
    _, choose = problem
    values = iter([np.tile(gains, 20), np.zeros(40)])  # with the low cost first
    monkeypatch.setattr(cost, "_ndcg", lambda model, dev: next(values))
    assert choose()[1].cost == chosen


def test_rows_of_rare_labels_stay_the_same_to_the_bit(problem):
    fit, _ = problem
    models = [fit(SparseConfig(cost=x)) for x in (0.5, 1.0)]
    for first, second in pairwise(models):
        changed = [(first.weights[[x]] != second.weights[[x]]).nnz > 0 for x in range(NUM_LABELS)]
        assert changed == [x != RARE for x in range(NUM_LABELS)]
