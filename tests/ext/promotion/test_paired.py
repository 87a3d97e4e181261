"""Paired tests: values whose means are the metrics, Holm by hand, and error rates by simulation."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.ext.promotion.paired import PromotionRules, holm, objections, quality_tests
from longtail.models.metrics import (
    RankedEvaluation,
    document_values_at,
    inverse_propensities,
    join_truth,
    ndcg_at,
    precision_at,
    propensity_scored_precision_at,
)

NUM_PAIRS = 200
NUM_LABELS = 60
COUNTS = np.array([0] * 6 + [1] * 6 + [5] * 16 + [40] * 16 + [200] * 16)
RULES = PromotionRules()
AS_GOOD = PromotionRules(must_be_better=False)


def ranked(scores: np.ndarray) -> np.ndarray:
    return np.argsort(-scores, axis=1)[:, :5].astype(np.int64)


def pair_of_models(
    seed: int, num_documents: int, noise: tuple[float, float]
) -> dict[str, RankedEvaluation]:
    """Two models that see the truth through independent noise; the same noise: equal models."""
    rng = np.random.default_rng(seed)
    truth = (rng.random((num_documents, NUM_LABELS)) < 0.06).astype(np.float32)
    truth[np.arange(num_documents), rng.integers(0, NUM_LABELS, num_documents)] = 1
    matrix = csr_array(truth)
    return {
        who: join_truth(ranked(truth + level * rng.standard_normal(truth.shape)), matrix)
        for who, level in zip(("current", "candidate"), noise, strict=True)
    }


def share_promoted(num_documents: int, noise: tuple[float, float], rules: PromotionRules) -> float:
    promoted = 0
    for seed in range(NUM_PAIRS):
        joined = pair_of_models(seed, num_documents, noise)
        promoted += not objections(quality_tests(joined, COUNTS, 1000, rules), rules)
    return promoted / NUM_PAIRS


def test_the_means_of_the_values_are_the_metrics():
    joined = pair_of_models(3, 50, (0.4, 0.4))["current"]
    weights = inverse_propensities(COUNTS, 1000)
    values = document_values_at(joined, 5, weights)
    expected = {
        "P@5": precision_at(joined, 5),
        "nDCG@5": ndcg_at(joined, 5),
        "PSP@5": propensity_scored_precision_at(joined, 5, weights),
    }
    assert {name: each.mean() for name, each in values.items()} == pytest.approx(expected)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.slow
def test_equal_models_are_promoted_in_less_than_one_in_twenty():
    assert share_promoted(300, (0.4, 0.4), RULES) < 0.05


@pytest.mark.slow
def test_models_that_are_worse_by_the_margin_are_promoted_in_less_than_one_in_twenty():
    """The margin is what the noise costs: the mean difference of P@5 over many documents."""
    joined = pair_of_models(999, 40_000, (0.4, 0.41))
    (test, *_) = quality_tests(joined, COUNTS, 1000, RULES)
    assert 0.003 < -test.difference < 0.02
    rules = PromotionRules(must_be_better=False, margin=-test.difference)
    assert share_promoted(300, (0.4, 0.41), rules) < 0.05


@pytest.mark.slow
def test_a_better_model_is_promoted_and_a_worse_one_refused():
    assert share_promoted(300, (0.5, 0.35), RULES) > 0.95
    assert share_promoted(300, (0.35, 0.5), AS_GOOD) == 0


def test_rare_labels_that_are_lost_are_a_reason_though_all_labels_gain():
    joined = pair_of_models(5, 600, (0.5, 0.3))
    labels = joined["candidate"].labels.copy()
    is_hit = joined["candidate"].is_hit.copy()
    is_rare = COUNTS[labels] == 1
    is_hit[is_rare] = False
    spoilt = RankedEvaluation(
        labels, is_hit, joined["candidate"].true_rows, joined["candidate"].true_labels, NUM_LABELS
    )
    tests = quality_tests(joined | {"candidate": spoilt}, COUNTS, 1000, RULES)
    (reason,) = objections(tests, RULES)
    assert reason.startswith("nDCG@5 of labels with 1 training documents is worse: 0.00 instead")
