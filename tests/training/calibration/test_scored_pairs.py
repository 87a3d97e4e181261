"""Pairs that stand for all pairs of a split."""

import numpy as np
import pytest

from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.calibration.scored_pairs import rank_best, score_pairs
from longtail.training.data.dataset import open_dataset
from tests.closeness import assert_all_close


@pytest.fixture(scope="module")
def predictor(trained):
    return Predictor.of_bundle(trained.bundle, device="cpu")


@pytest.fixture(scope="module")
def split(tiny_corpus):
    return open_dataset(tiny_corpus).split("dev")


@pytest.fixture(scope="module")
def pairs(predictor, split):
    batch = predictor.read(list(split.texts()))
    return score_pairs(predictor, batch, split.scan().labels, 0, rank_best(predictor, batch))


def test_all_best_and_all_true_labels_are_there_with_weight_1(pairs, predictor, split):
    truth = split.scan().labels.toarray() > 0
    options = RankingOptions(64, "linear")
    best = predictor.rank(predictor.read(list(split.texts())), options).labels
    for row, labels in enumerate(pairs.labels):
        there = labels[labels != NO_LABEL]
        assert (np.diff(there) > 0).all()
        assert set(np.flatnonzero(truth[row])) <= set(there)
        assert set(best[row]) <= set(labels[pairs.is_best[row]])
        assert set(labels[pairs.is_true[row]]) == set(np.flatnonzero(truth[row]))
        is_named = pairs.is_best[row] | pairs.is_true[row]
        assert (pairs.weights[row, is_named] == 1).all()


def test_the_weights_of_a_document_sum_to_the_number_of_labels(pairs, predictor):
    assert_all_close(pairs.weights.sum(axis=1), len(predictor.catalogue), rtol=1e-5)
    assert (pairs.weights[pairs.labels == NO_LABEL] == 0).all()
    assert pairs.weights.max() > 1  # not all 310 labels are looked at


def test_scores_are_those_of_the_predictor(pairs, predictor, split):
    batch = predictor.read(list(split.texts()))
    for name in predictor.scorers.names:
        found = predictor.score(batch, pairs.labels, RankingOptions(scorer=name))
        np.testing.assert_array_equal(pairs.scores[name], found)


def test_sums_over_the_pairs_estimate_sums_over_all(pairs, predictor, split):
    texts = list(split.texts())
    batch = predictor.read(texts)
    everything = np.tile(np.arange(len(predictor.catalogue)), (len(texts), 1))
    for name in ("retrieval", "linear"):
        scores = predictor.score(batch, everything, RankingOptions(scorer=name))
        total = 1 / (1 + np.exp(-scores[np.isfinite(scores)].astype(np.float64)))
        some, _, weights = pairs.of(name)
        estimate = weights / (1 + np.exp(-some.astype(np.float64)))
        assert estimate.sum() == pytest.approx(total.sum(), rel=0.05)
