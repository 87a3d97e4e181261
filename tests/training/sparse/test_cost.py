"""The cost of frequent labels' errors, where the configuration leaves it to the dev split."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.training.configuration.sections import DEFAULT_COST, SparseConfig
from longtail.training.fitting import DevDocuments
from longtail.training.sparse import cost
from longtail.training.sparse.cost import with_cost_chosen

NUM_LABELS, NUM_DOCUMENTS = 12, 300
USELESS = 1e-6
"""A cost with which all weights are pruned."""


def documents(seed: int, num_labels: int = NUM_LABELS) -> DevDocuments:
    """Documents of one or two labels, each with a word of its own among others."""
    rng = np.random.default_rng(seed)
    truth = np.zeros((NUM_DOCUMENTS, num_labels), dtype=np.float32)
    for _ in range(2):
        truth[np.arange(NUM_DOCUMENTS), rng.integers(0, num_labels, NUM_DOCUMENTS)] = 1
    others = (rng.random((NUM_DOCUMENTS, 30)) < 0.2).astype(np.float32)
    words = np.hstack([truth, others])
    words /= np.linalg.norm(words, axis=1, keepdims=True)
    return DevDocuments(csr_array(words), csr_array(truth))


def chosen(folder, dev, *, train=None, **config) -> float | str:
    train = train or documents(0)
    settings = SparseConfig.model_validate(config)
    found = with_cost_chosen(
        settings, train.features, train.truth, lambda: dev, seed=1, folder=folder
    )
    assert found == settings.model_copy(update={"cost": found.cost})
    return found.cost


def test_a_cost_that_is_given_stays_and_nothing_is_trained(tmp_path):
    assert chosen(tmp_path, documents(1), cost=3.0) == 3.0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("default", "candidates", "best"),
    [(USELESS, (3.0, 1.0), 3.0), (USELESS, (2 * USELESS, 1.0), 1.0), (1.0, (USELESS,), 1.0)],
)
def test_the_first_cost_is_taken_that_ranks_better_beyond_chance(
    tmp_path, monkeypatch, default, candidates, best
):
    monkeypatch.setattr(cost, "CANDIDATES", candidates)
    monkeypatch.setattr(cost, "DEFAULT_COST", default)
    assert chosen(tmp_path, documents(1)) == best
    assert chosen(tmp_path, documents(1)) == best  # of the same files


def test_the_cost_stays_where_others_are_as_good(tmp_path, monkeypatch):
    values = iter([np.zeros(40), np.tile([0.5, -0.45], 20), np.full(40, -0.1)])
    monkeypatch.setattr(cost, "_ndcg", lambda scores, truth: next(values))
    assert chosen(tmp_path, documents(1)) == DEFAULT_COST


@pytest.mark.parametrize(
    ("dev", "train"),
    [
        (None, documents(0)),
        (documents(1, 250), documents(0, 250)),  # no label has 10 documents
        (DevDocuments(documents(1).features[:99], documents(1).truth[:99]), documents(0)),
    ],
    ids=["no documents", "no frequent label", "few documents"],
)
def test_the_cost_stays_where_there_is_nothing_to_choose_on(tmp_path, monkeypatch, dev, train):
    monkeypatch.setattr(cost, "CANDIDATES", (3.0,))
    monkeypatch.setattr(cost, "DEFAULT_COST", USELESS)
    assert chosen(tmp_path, dev, train=train) == USELESS


def test_few_labels_of_all_frequencies_are_tried(monkeypatch):
    counts = np.arange(1, 101)
    rows = np.concatenate([np.arange(count) for count in counts])
    columns = np.repeat(np.arange(100), counts)
    truth = csr_array((np.ones(len(rows), dtype=np.float32), (rows, columns)))
    assert cost._sample(truth).tolist() == list(range(9, 100))
    monkeypatch.setattr(cost, "_FEW_LABELS", 8)
    assert cost._sample(truth).tolist() == [9, 19, 29, 39, 49, 59, 69, 79, 89, 99]
