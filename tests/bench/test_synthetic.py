"""Made-up corpora: what they promise of labels, words and seeds."""

from __future__ import annotations

import numpy as np
import pytest
import synthetic
from scipy.sparse import vstack
from synthetic import SyntheticCorpus

from longtail.training.data.dataset import open_dataset
from tests.closeness import assert_all_close

CORPUS = SyntheticCorpus(2000, 300, 500, seed=3)


def test_every_label_has_a_document_and_every_document_a_label():
    _, truth = CORPUS.make()
    assert truth.shape == (2000, 300)
    assert truth.sum(axis=0).min() >= 1
    assert truth.sum(axis=1).min() >= 1
    assert set(truth.data) == {1}


def test_frequencies_follow_the_power_law():
    counts = np.asarray(SyntheticCorpus(50_000, 200, 500).make()[1].sum(axis=0))
    ranks = np.arange(1, 201)
    slope = np.polyfit(np.log(ranks[:100]), np.log(counts[:100]), 1)[0]
    assert slope == pytest.approx(-0.7, abs=0.05)


def test_rows_have_length_one_and_words_of_their_labels():
    features, truth = CORPUS.make()
    assert_all_close((features**2).sum(axis=1), 1, rtol=1e-5)
    centroids = truth.T @ features
    own = np.asarray((truth @ centroids).multiply(features).sum(axis=1))
    others = np.asarray((np.roll(truth.toarray(), 1, axis=1) @ centroids) * features.toarray())
    assert own.mean() > 1.5 * others.sum(axis=1).mean()


def test_the_seed_decides_and_the_chunks_do_not_change_the_shape(monkeypatch):
    first, again = CORPUS.make()[0], CORPUS.make()[0]
    other = SyntheticCorpus(2000, 300, 500, seed=4).make()[0]
    assert (first != again).nnz == 0
    assert (first != other).nnz > 0
    monkeypatch.setattr(synthetic, "_CHUNK", 300)
    features, truth = CORPUS.make()
    assert features.shape == first.shape
    assert truth.sum(axis=0).min() >= 1


def test_files_hold_the_corpus_as_the_product_reads_it(tmp_path):
    synthetic.write_corpus(CORPUS, tmp_path, num_held_out=200)
    dataset = open_dataset(tmp_path)
    _, truth = CORPUS.make()
    read = [dataset.split(name).scan() for name in ("train", "dev", "test")]
    assert [scan.labels.shape[0] for scan in read] == [1600, 200, 200]
    assert (vstack([scan.labels for scan in read]) != truth).nnz == 0
    assert [label.name for label in dataset.labels] == [
        f"w{first:06} w{second:06}" for first, second in CORPUS.own_words()[:, :2]
    ]
