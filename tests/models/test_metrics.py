"""Metrics against slow loops over small problems, and the identities they obey."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.models.errors import DataError
from longtail.models.metrics import (
    RankedEvaluation,
    inverse_propensities,
    join_truth,
    label_f1_at,
    ndcg_at,
    precision_at,
    propensity_scored_ndcg_at,
    propensity_scored_precision_at,
    r_precision_at,
    recall_at,
)
from longtail.models.ranking.top_k import NO_LABEL


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[list[int]], list[set[int]], int, int]:
    """Draw ranked labels (ragged), true labels, the number of labels and a k."""
    num_labels = draw(st.integers(1, 7))
    num_documents = draw(st.integers(1, 5))
    ranked = [
        draw(st.permutations(range(num_labels)))[: draw(st.integers(0, num_labels))]
        for _ in range(num_documents)
    ]
    true = [draw(st.sets(st.integers(0, num_labels - 1))) for _ in range(num_documents)]
    return ranked, true, num_labels, draw(st.integers(1, num_labels))


def truth_of(true: list[set[int]], num_labels: int) -> csr_array:
    dense = np.zeros((len(true), num_labels), dtype=np.float32)
    for row, labels in enumerate(true):
        dense[row, list(labels)] = 1
    return csr_array(dense)


def judged_of(ranked: list[list[int]], true: list[set[int]], num_labels: int) -> RankedEvaluation:
    labels = np.full((len(ranked), num_labels), NO_LABEL, dtype=np.int64)
    for row, best in enumerate(ranked):
        labels[row, : len(best)] = best
    return join_truth(labels, truth_of(true, num_labels))


def weights_of(num_labels: int) -> np.ndarray:
    return inverse_propensities(np.arange(num_labels), 100)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def dcg(gains: list[float]) -> float:
    return sum(gain / math.log2(place + 1) for place, gain in enumerate(gains, 1))


@given(problems())
def test_precision_recall_and_r_precision_equal_a_loop(problem):
    ranked, true, num_labels, k = problem
    judged = judged_of(ranked, true, num_labels)
    hits = [len(set(best[:k]) & wanted) for best, wanted in zip(ranked, true, strict=True)]
    num_true = [len(wanted) for wanted in true]
    recalls = [h / n if n else 0.0 for h, n in zip(hits, num_true, strict=True)]
    capped = [h / min(k, n) if n else 0.0 for h, n in zip(hits, num_true, strict=True)]
    assert precision_at(judged, k) == pytest.approx(mean([h / k for h in hits]))
    assert recall_at(judged, k) == pytest.approx(mean(recalls))
    assert r_precision_at(judged, k) == pytest.approx(mean(capped))


@given(problems())
def test_ndcg_equals_a_loop(problem):
    ranked, true, num_labels, k = problem
    rows = []
    for best, wanted in zip(ranked, true, strict=True):
        gains = dcg([float(label in wanted) for label in best[:k]])
        rows.append(gains / dcg([1.0] * min(k, len(wanted))) if wanted else 0.0)
    assert ndcg_at(judged_of(ranked, true, num_labels), k) == pytest.approx(mean(rows))


@given(problems())
def test_propensity_scored_precision_is_a_ratio_of_sums(problem):
    ranked, true, num_labels, k = problem
    weights = weights_of(num_labels)
    gained = attainable = 0.0
    for best, wanted in zip(ranked, true, strict=True):
        gained += sum(weights[label] for label in best[:k] if label in wanted)
        attainable += sum(sorted((weights[label] for label in wanted), reverse=True)[:k])
    value = propensity_scored_precision_at(judged_of(ranked, true, num_labels), k, weights)
    assert value == pytest.approx(gained / attainable if attainable else 0.0)


@given(problems())
def test_propensity_scored_ndcg_is_a_ratio_of_mean_ndcgs(problem):
    ranked, true, num_labels, k = problem
    weights = weights_of(num_labels)
    gained = attainable = 0.0
    for best, wanted in zip(ranked, true, strict=True):
        if wanted:
            ideal = dcg([1.0] * min(k, len(wanted)))
            gained += dcg([weights[x] if x in wanted else 0.0 for x in best[:k]]) / ideal
            attainable += dcg(sorted((weights[x] for x in wanted), reverse=True)[:k]) / ideal
    value = propensity_scored_ndcg_at(judged_of(ranked, true, num_labels), k, weights)
    assert value == pytest.approx(gained / attainable if attainable else 0.0)


@given(problems())
def test_label_f1_equals_the_contingency_table_of_each_label(problem):
    ranked, true, num_labels, k = problem
    expected = []
    for label in range(num_labels):
        decisions = [(label in b[:k], label in w) for b, w in zip(ranked, true, strict=True)]
        hit, wrong, missed = (decisions.count(x) for x in [(1, 1), (1, 0), (0, 1)])
        precision, recall = hit / max(hit + wrong, 1), hit / max(hit + missed, 1)
        expected.append(2 * precision * recall / (precision + recall) if hit else 0.0)
    judged = judged_of(ranked, true, num_labels)
    assert label_f1_at(judged, k) == pytest.approx(expected)


@given(problems(), st.data())
def test_restricting_equals_judging_the_smaller_truth_on_its_documents(problem, data):
    ranked, true, num_labels, k = problem
    subset = data.draw(st.sets(st.integers(0, num_labels - 1)))
    judged = judged_of(ranked, true, num_labels)
    kept = judged.restricted_to(np.isin(np.arange(num_labels), list(subset)))
    pairs = [(b, w & subset) for b, w in zip(ranked, true, strict=True) if w & subset]
    assert kept.num_documents == len(pairs)
    if pairs:
        expected = judged_of([b for b, _ in pairs], [w for _, w in pairs], num_labels)
        assert ndcg_at(kept, k) == ndcg_at(expected, k)
        weights = weights_of(num_labels)
        assert propensity_scored_ndcg_at(kept, k, weights) == pytest.approx(
            propensity_scored_ndcg_at(expected, k, weights)
        )


@given(problems())
def test_a_ranking_that_puts_the_heaviest_true_labels_first_is_perfect(problem):
    _, true, num_labels, k = problem
    true = [wanted or {0} for wanted in true]
    weights = weights_of(num_labels)
    judged = judged_of([sorted(wanted) for wanted in true], true, num_labels)
    assert precision_at(judged, 1) == r_precision_at(judged, k) == 1
    assert ndcg_at(judged, k) == pytest.approx(1)
    assert propensity_scored_precision_at(judged, k, weights) == pytest.approx(1)
    assert propensity_scored_ndcg_at(judged, k, weights) == pytest.approx(1)


def test_documents_without_true_labels_are_counted_and_score_zero():
    judged = judged_of([[0], [0]], [{0}, set()], 1)
    assert judged.num_documents_without_labels == 1
    assert precision_at(judged, 1) == recall_at(judged, 1) == ndcg_at(judged, 1) == 0.5


def test_inverse_propensities_follow_jain_et_al():
    scale = (math.log(1000) - 1) * 2.5**0.55
    expected = [1 + scale * (count + 1.5) ** -0.55 for count in (0, 1, 500)]
    assert inverse_propensities(np.array([0, 1, 500]), 1000) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([[0, 1]], "1 rows, the truth 2"),
        ([[0, 1], [2, 3]], "names label 3, the truth has 3 labels"),
        ([[0, -2], [0, 1]], "names label -2"),
        ([[0, 1], [2, 2]], "row 1 of the ranking names a label twice"),
        ([[-1, 1], [0, 1]], "after NO_LABEL"),
    ],
)
def test_broken_rankings_are_refused(labels, words):
    with pytest.raises(DataError, match=words):
        join_truth(np.array(labels), truth_of([{0}, {1}], 3))
