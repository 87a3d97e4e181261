"""The threshold of the best micro-F1, against all thresholds tried one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.metrics import f1_score, precision_score, recall_score

from longtail.models.fitted.label_counts import PlaceThreshold
from longtail.models.scorers.calibration import IDENTITY
from longtail.training.calibration.scored_pairs import ScoredPairs
from longtail.training.calibration.thresholds import (
    best_label_count,
    best_threshold,
    measure_threshold,
)


def pairs_of(scores, is_true, weights=None):
    """One document whose pairs are these."""
    is_true = np.asarray(is_true, dtype=np.bool_)[None]
    weights = np.ones(is_true.shape) if weights is None else np.asarray(weights)[None]
    return ScoredPairs(
        labels=np.arange(is_true.shape[1], dtype=np.int64)[None],
        is_true=is_true,
        is_best=np.ones_like(is_true),
        weights=weights.astype(np.float32),
        scores={"one": np.asarray(scores, dtype=np.float32)[None]},
        counts=np.zeros(is_true.shape, dtype=np.int64),
    )


@pytest.mark.slow
@given(
    rows=st.lists(
        st.tuples(st.sampled_from([-np.inf, -2.0, -0.5, 0.0, 0.5, 3.0]), st.booleans()), min_size=1
    )
)
def test_no_other_threshold_has_a_larger_f1(rows):
    scores, is_true = map(np.array, zip(*rows, strict=True))
    pairs = pairs_of(scores, is_true)
    threshold = best_threshold(pairs, "one", IDENTITY)
    if not is_true[scores > -np.inf].any():
        assert threshold is None
        return
    found = measure_threshold(pairs, "one", IDENTITY, threshold)
    each = expit(scores.astype(np.float32).astype(np.float64))
    tried = {p: f1_score(is_true, each >= p) for p in set(each[scores > -np.inf])}
    assert found.micro_f1 == pytest.approx(max(tried.values()))
    best = [p for p, value in tried.items() if value > found.micro_f1 - 1e-12]
    assert threshold == max(best)
    is_answered = each >= threshold
    assert found.precision == pytest.approx(precision_score(is_true, is_answered))
    assert found.recall == pytest.approx(recall_score(is_true, is_answered))


def test_a_threshold_by_place_reaches_what_no_other_of_its_family_exceeds() -> None:
    rng = np.random.default_rng(1)
    scores = -np.sort(-rng.normal(0, 2, (80, 12)), axis=1).astype(np.float32)
    places = np.log(np.arange(1, 13))
    is_true = rng.random(scores.shape) < expit(scores - 0.9 * places)
    pairs = ScoredPairs.joined([pairs_of(*row) for row in zip(scores, is_true, strict=True)])
    found = best_label_count(pairs, "one", IDENTITY)

    def f1(rule: PlaceThreshold) -> float:
        answered = scores >= np.float32(rule.first) + rule.rise * places - 1e-6
        return f1_score(is_true.ravel(), answered.ravel())

    assert found.rise > 0
    others = [PlaceThreshold(first, rise) for first in np.arange(-3, 3, 0.3) for rise in (0.0, 0.6)]
    assert f1(found) >= max(map(f1, others))
    assert best_label_count(pairs_of([1.0], [False]), "one", IDENTITY) is None


def test_a_pair_of_weight_3_counts_as_three_and_what_is_not_scored_is_missed():
    def shares(threshold, pairs):
        found = measure_threshold(pairs, "one", IDENTITY, threshold)
        return pytest.approx((found.precision, found.recall, found.micro_f1))

    pairs = pairs_of([1.0, 0.0, -np.inf], [True, False, True], [1.0, 3.0, 1.0])
    assert shares(0.5, pairs) == (1 / 4, 1 / 2, 2 / (4 + 2))
    assert shares(0.6, pairs) == (1, 1 / 2, 2 / (1 + 2))
    assert shares(0.9, pairs) == (0, 0, 0)
    assert shares(0.9, pairs_of([1.0], [False])) == (0, 0, 0)
