"""What an experiment learns from and is measured on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.models.errors import DataError
from longtail.training.data.dataset import open_dataset
from research.experiments.data import read_experiment_data, thirds

TRAIN = [("red car", ["a"]), ("red bus", ["a"]), ("blue bus", ["b"])]


def write_corpus(folder: Path, **splits: list[tuple[str, list[str]]]) -> Path:
    for name, documents in splits.items():
        lines = [json.dumps({"text": text, "labels": labels}) for text, labels in documents]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


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


def test_documents_without_labels_are_measured_but_not_trained_on(tmp_path):
    documents = [("red car", ["a"]), ("blue car", []), ("red bus", ["a"]), ("a blue bus", ["b"])]
    data = read_experiment_data(
        open_dataset(write_corpus(tmp_path, train=documents, dev=documents)), "dev"
    )
    assert data.train.truth.shape == (3, 2)
    assert data.measured.truth.shape == (4, 2)


def test_without_a_dev_split_a_tenth_is_held_out_and_texts_are_not_divided(tmp_path):
    texts = [f"word{i % 20} thing{i % 7} item{i % 200}" for i in range(600)]  # each three times
    documents = [(text, ["a"]) for text in texts]
    folder = write_corpus(tmp_path, train=documents, test=documents[:2])
    data = read_experiment_data(open_dataset(folder), "dev")
    rows = [{tuple(row) for row in part.features.toarray()} for part in (data.train, data.measured)]
    assert data.train.truth.shape[0] + data.measured.truth.shape[0] == 600
    assert 30 <= data.measured.truth.shape[0] <= 90
    assert not rows[0] & rows[1]


def test_a_corpus_without_a_test_split_is_not_given_one(tmp_path):
    folder = write_corpus(tmp_path, train=TRAIN)
    with pytest.raises(DataError, match="no split 'test'"):
        read_experiment_data(open_dataset(folder), "test")


def test_nothing_to_measure_on_is_refused(tmp_path):
    folder = write_corpus(tmp_path, train=TRAIN, dev=[("red car", [])])
    with pytest.raises(DataError, match=r"split 'dev': no document .* to measure on"):
        read_experiment_data(open_dataset(folder), "dev")


def test_thirds_of_labels_by_hand():
    parts = thirds(np.array([9, 1, 5, 1, 2, 8, 4, 6, 3, 7]))  # quantiles 2.97 and 5.94
    assert {name: list(np.flatnonzero(is_in)) for name, is_in in parts.items()} == {
        "Head": [0, 5, 7, 9], "Torso": [2, 6, 8], "Tail": [1, 3, 4], "Full": list(range(10)),
    }  # fmt: skip


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30))
def test_thirds_divide_the_labels_and_no_frequency(counts):
    counts = np.array(counts)
    parts = thirds(counts)
    assert (sum(parts[name].astype(int) for name in ("Head", "Torso", "Tail")) == 1).all()
    for name, is_in in parts.items():
        assert name == "Full" or not set(counts[is_in]) & set(counts[~is_in])
