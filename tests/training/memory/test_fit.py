"""Number and temperature of neighbours are chosen on dev; without one the first are taken."""

import itertools

import numpy as np
from scipy.sparse import csr_array

from longtail.models.memory.search import nearest_documents
from longtail.models.memory.source import NeighbourSource
from longtail.models.metrics import join_truth, ndcg_at
from longtail.training.fitting import DevDocuments
from longtail.training.memory.fit import Candidates, fit_memory

CONFIG = Candidates(num_neighbours=(4, 1, 20), temperature=(0.1, 0.5, 0.02))


def noisy_documents(seed: int, num_documents: int) -> tuple[csr_array, csr_array]:
    """Documents of a topic's words and others, whose labels are of the topic and often wrong."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(0, 6, num_documents)
    words = rng.random((num_documents, 30)) * (rng.random((num_documents, 30)) < 0.3)
    words[np.arange(num_documents), topics] += 0.6
    words /= np.linalg.norm(words, axis=1, keepdims=True)
    labels = np.where(rng.random(num_documents) < 0.4, rng.integers(0, 6, num_documents), topics)
    truth = np.zeros((num_documents, 6))
    truth[np.arange(num_documents), labels] = 1
    return csr_array(words.astype(np.float32)), csr_array(truth.astype(np.float32))


def ids_of(matrix: csr_array) -> list[str]:
    return [str(row) for row in range(matrix.shape[0])]


def test_the_best_on_dev_is_chosen():
    features, truth = noisy_documents(0, 300)
    dev = DevDocuments(*noisy_documents(1, 100))
    found = fit_memory(features, truth, ids_of(truth), dev, CONFIG)
    values = {}
    for number, temperature in itertools.product(CONFIG.num_neighbours, CONFIG.temperature):
        config = Candidates(num_neighbours=(number,), temperature=(temperature,))
        memory = fit_memory(features, truth, ids_of(truth), None, config)
        source = NeighbourSource(memory, nearest_documents(memory, dev.features, number))
        ranking = source.top(np.arange(100), 5)
        values[number, temperature] = ndcg_at(join_truth(ranking.labels, dev.truth), 5)
    assert len(set(values.values())) > 3
    assert values[found.num_neighbours, found.temperature] == max(values.values())
    assert found.num_neighbours == 20  # labels are noisy
