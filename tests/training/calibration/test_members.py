"""Which scorers a blend is made of: those without which the dev split is ranked worse."""

from threading import Barrier, get_ident

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import expit

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.metrics import (
    inverse_propensities,
    join_truth,
    ndcg_at,
    propensity_scored_precision_at,
)
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.scorers.calibration import IDENTITY
from longtail.training.calibration.blends import fit_blend
from longtail.training.calibration.members import DevRanking, blended
from longtail.training.calibration.scored_pairs import ScoredPairs, rank_best, score_pairs
from longtail.training.data.dataset import open_dataset
from tests.closeness import assert_all_close

NUM_DOCUMENTS, NUM_LABELS = 400, 12
CATALOGUE = LabelCatalogue(
    Label(f"L{i}", f"l{i}", training_count=n) for i, n in enumerate((0, 1, 3, 9, 30, 200) * 2)
)


def dev_of(weights: dict[str, float], num_documents: int = NUM_DOCUMENTS) -> DevRanking:
    """Documents whose labels are drawn by scorers of these weights, each with noise of its own."""
    rng = np.random.default_rng(0)
    scores = {name: rng.normal(size=(num_documents, NUM_LABELS)) for name in weights}
    log_odds = -2 + sum(weight * scores[name] for name, weight in weights.items())
    is_true = rng.random(log_odds.shape) < expit(log_odds)
    pairs = ScoredPairs(
        labels=np.tile(np.arange(NUM_LABELS), (num_documents, 1)),
        is_true=is_true,
        is_best=np.ones(is_true.shape, dtype=bool),
        weights=np.ones(is_true.shape, dtype=np.float32),
        scores={name: some.astype(np.float32) for name, some in scores.items()},
        counts=np.zeros(is_true.shape, dtype=np.int64),
    )
    return DevRanking.of(pairs, csr_array(is_true.astype(np.float32)), CATALOGUE, 500)


def chosen(weights: dict[str, float], num_documents: int = NUM_DOCUMENTS) -> tuple[str, ...]:
    dev = dev_of(weights, num_documents)
    return dev.choose(tuple(weights), dict.fromkeys(weights, IDENTITY))


def test_scorers_that_say_nothing_are_left_out():
    weights = {"noise": 0.0, "good": 2.0, "other": 2.0}
    assert chosen(weights, num_documents=1600) == ("good", "other")


def test_scorers_that_each_know_something_stay():
    assert chosen({"first": 2.0, "second": 2.0}) == ("first", "second")


def test_blends_without_one_scorer_each_are_fitted_side_by_side(monkeypatch):
    """And the choice is the same: a fit shares nothing with another."""
    weights, threads = {"noise": 0.0, "good": 2.0, "other": 2.0}, set()
    fit, both_are_there = DevRanking._value, Barrier(2)

    def noted(self, members, calibrations):
        threads.add(get_ident())
        if len(members) == 1:  # of the last round, each waits for the other
            both_are_there.wait(30)
        return fit(self, members, calibrations)

    alone = []
    for count in (1, 2):
        monkeypatch.setattr("longtail.training.calibration.members.cpu_count", lambda n=count: n)
        if count == 2:
            monkeypatch.setattr(DevRanking, "_value", noted)
        alone.append(chosen(weights, num_documents=1600))
    assert alone[0] == alone[1] == ("good", "other")
    assert len(threads) >= 3  # this one, and two more: those of a later round may be others


def test_one_scorer_is_left_however_bad_it_is():
    assert chosen({"noise": 0.0}) == ("noise",)
    assert len(chosen({"noise": 0.0, "more": 0.0})) >= 1


def test_each_half_is_ranked_by_what_was_fitted_on_the_other(monkeypatch):
    """The oracle: both halves, written out."""
    dev = dev_of({"first": 2.0, "second": 1.0}, num_documents=40)
    curves = dict.fromkeys(("first", "second"), IDENTITY)
    scores = np.empty((40, NUM_LABELS), dtype=np.float32)
    for half in (0, 1):
        own, other = np.arange(half, 40, 2), np.arange(1 - half, 40, 2)
        fitted = fit_blend(
            dev.pairs.of_documents(other), ("first", "second"), curves, CATALOGUE.training_counts
        )
        scores[own] = blended(fitted, curves, dev.pairs.of_documents(own), CATALOGUE)
    joined = join_truth(np.argsort(-scores, axis=1, kind="stable")[:, :5], dev.truth)
    weights = inverse_propensities(CATALOGUE.training_counts, 500)
    right = ndcg_at(joined, 5) + propensity_scored_precision_at(joined, 5, weights)
    assert dev._value(("first", "second"), curves) == pytest.approx(right, abs=1e-12)


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
        if name == "word_vectors":  # a blend lists its best labels alone
            is_listed = ~np.isneginf(pairs.scores[name])
            assert is_listed.any()
            found = np.where(is_listed, found, -np.inf)
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
