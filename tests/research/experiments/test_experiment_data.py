"""What an experiment learns from and is measured on."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longtail.training.data.dataset import open_dataset
from research.experiments.data import read_experiment_data, thirds


def test_a_split_is_measured_with_the_labels_and_features_of_training(tiny_corpus):
    dataset = open_dataset(tiny_corpus)
    data = read_experiment_data(dataset, "test")
    train = dataset.split("train").scan().labels
    is_trained = train.sum(axis=0) > 0
    assert 0 < is_trained.sum() < len(is_trained)
    np.testing.assert_array_equal(data.train.truth.toarray(), train.toarray()[:, is_trained])
    np.testing.assert_array_equal(
        data.measured.truth.toarray(),
        dataset.split("test").scan().labels.toarray()[:, is_trained],
    )
    np.testing.assert_array_equal(data.counts, train.sum(axis=0)[is_trained])
    assert data.train.features.shape[1] == data.measured.features.shape[1]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30))
def test_thirds_divide_the_labels_and_no_frequency(counts):
    counts = np.array(counts)
    parts = thirds(counts)
    assert (sum(parts[name].astype(int) for name in ("Head", "Torso", "Tail")) == 1).all()
    for name, is_in in parts.items():
        assert name == "Full" or not set(counts[is_in]) & set(counts[~is_in])
