"""The weight of a reviewer's scores: a perfect one decides, a random one counts nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.ext.review.reviewed import Reviewed
from longtail.ext.review.weights import fit_review, held_out_gain
from longtail.models.errors import ConfigError
from longtail.models.fitted.review import MODEL, REVIEW, REVIEWER
from longtail.models.ranking.top_k import Ranking
from longtail.models.scorers.calibration import log_odds_of
from longtail.training.assessment.untrained import LeftOut
from longtail.training.calibration.scored_pairs import ScoredPairs
from longtail.training.evaluation.by_frequency import evaluate

NUM_CANDIDATES, NUM_LABELS, NUM_FITTED = 20, 500, 300
COUNTS = np.repeat([0, 1, 5, 50, 500], NUM_LABELS // 5).astype(np.int64)


@pytest.fixture(scope="module")
def drawn():
    """Candidates whose log-odds the model knows, but for noise; the best first."""
    rng = np.random.default_rng(0)
    shape = (3000, NUM_CANDIDATES)
    labels = rng.random((shape[0], NUM_LABELS)).argsort(axis=1)[:, :NUM_CANDIDATES]
    scores = -np.sort(-rng.normal(-2, 2, shape), axis=1).astype(np.float32)
    is_true = rng.random(shape) < 1 / (1 + np.exp(-scores))
    return labels, scores, is_true, rng.normal(size=shape)


def pairs_of(drawn, reviewed):
    labels, scores, is_true, _ = drawn
    ones = np.ones(labels.shape, dtype=np.float32)
    given = {MODEL: scores, REVIEWER: reviewed.astype(np.float32)}
    return ScoredPairs(labels, is_true, is_true, ones, given, COUNTS[labels])


def fitted_and_measured(pairs, k):
    """P@k before and after on the documents that the review is not fitted on, and the best."""
    review = fit_review(pairs.of_documents(np.arange(NUM_FITTED)), COUNTS)
    rest = pairs.of_documents(np.arange(NUM_FITTED, len(pairs.labels)))
    log_odds = review.log_odds(rest.scores[MODEL], rest.scores[REVIEWER], COUNTS[rest.labels])
    order = np.argsort(-log_odds, axis=1, kind="stable")[:, :k]
    after = np.take_along_axis(rest.is_true, order, axis=1).mean()
    return rest.is_true[:, :k].mean(), after, np.minimum(rest.is_true.sum(axis=1), k).mean() / k


@pytest.mark.parametrize("k", [1, 5])
def test_with_a_perfect_reviewer_all_right_candidates_come_first(drawn, k):
    pairs = pairs_of(drawn, drawn[2].astype(float))
    _, after, best = fitted_and_measured(pairs, k)
    assert after == pytest.approx(best)
    assert held_out_gain(pairs.of_documents(np.arange(NUM_FITTED)), COUNTS).is_significant


def test_a_random_reviewer_counts_nothing(drawn):
    pairs = pairs_of(drawn, drawn[3])
    before, after, _ = fitted_and_measured(pairs, 1)
    assert after >= before - 0.001  # even where it were published
    for first in range(0, 3000, 600):
        part = pairs.of_documents(np.arange(first, first + NUM_FITTED))
        assert not held_out_gain(part, COUNTS).is_significant  # so nothing is published


def test_without_a_right_candidate_nothing_is_fitted(drawn):
    pairs = pairs_of(drawn, drawn[3])
    with pytest.raises(ConfigError, match="right"):
        fit_review(replace(pairs, is_true=np.zeros_like(pairs.is_true)), COUNTS)


@pytest.mark.parametrize(
    "change",
    [
        {"num_candidates": 1}, {"num_candidates": 51}, {"num_documents": 0}, {"scorer": 3},
        {"model_curve": {}}, {"weights": [1.0]}, {"weights": [-1.0] * 7}, {"other": 1},
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused(drawn, change):
    few = pairs_of(drawn, drawn[3]).of_documents(np.arange(20))
    review = fit_review(few, COUNTS, "ensemble", "dice")
    assert REVIEW.from_json(REVIEW.to_json(review), 1) == review
    content = json.loads(REVIEW.to_json(review)) | change
    with pytest.raises(ValueError, match=r"expected|missing|unknown"):
        REVIEW.from_json(json.dumps(content), 1)


def loss(log_odds, is_true):
    """Minus the logarithm of the probability of what is so."""
    return float(np.log1p(np.exp(-log_odds if is_true else log_odds)))


@pytest.mark.parametrize("kind", ["perfect", "random"])
def test_the_gain_is_the_fall_of_the_loss_by_an_oracle(drawn, kind):
    reviewed = {"perfect": drawn[2].astype(float), "random": drawn[3]}[kind]
    pairs = pairs_of(drawn, reviewed).of_documents(np.arange(60))
    falls = np.zeros(60)
    for half in (0, 1):
        review = fit_review(pairs.of_documents(np.arange(1 - half, 60, 2)), COUNTS)
        for row in range(half, 60, 2):
            for place in range(NUM_CANDIDATES):
                one = np.array([row]), np.array([place])
                score, told = pairs.scores[MODEL][one], pairs.scores[REVIEWER][one]
                alone = log_odds_of(review.model_curve, score)
                both = review.log_odds(score, told, COUNTS[pairs.labels[one]])
                is_true = pairs.is_true[row, place]
                falls[row] += loss(alone[0], is_true) - loss(both[0], is_true)
    gain = held_out_gain(pairs, COUNTS)
    assert gain.nats == pytest.approx(falls.mean(), rel=1e-6, abs=1e-9)
    assert gain.standard_error == pytest.approx(falls.std() / np.sqrt(60), rel=1e-6, abs=1e-9)
    assert (gain.nats > 0) or kind == "random"


@pytest.mark.parametrize(
    ("nats", "told"),
    [(-0.008, "it raises the log-loss by 0.008"), (0.25, "it lowers the log-loss by 0.250")],
)
def test_the_sentence_says_whether_the_loss_falls(drawn, nats, told):
    pairs = pairs_of(drawn, drawn[3]).of_documents(np.arange(20))
    ranking = Ranking(pairs.labels, pairs.scores[MODEL])
    truth = csr_array(np.ones((20, NUM_LABELS), dtype=np.float32))
    evaluation = evaluate({"before": ranking}, truth, COUNTS, 1000, [1])
    gain = replace(held_out_gain(pairs, COUNTS), nats=nats)
    left_out = LeftOut(np.zeros(20, dtype=np.bool_))
    found = Reviewed(fit_review(pairs, COUNTS), gain, evaluation, pairs, 0, left_out)
    assert told in found.to_markdown()
