"""The weight of a reviewer's scores: a perfect one decides, a random one counts nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from longtail.models.errors import ConfigError
from longtail.models.review.fitted import MODEL, REVIEWER, review_from_json, review_to_json
from longtail.training.calibration.reviews import fit_review, held_out_gain
from longtail.training.calibration.scored_pairs import ScoredPairs

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
    return ScoredPairs(labels, is_true, is_true, ones, given)


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
    assert review_from_json(review_to_json(review)) == review
    content = json.loads(review_to_json(review)) | change
    with pytest.raises(ValueError, match=r"expected|missing|unknown"):
        review_from_json(json.dumps(content))
