"""Rankings against a full sort, to the bit, with as many ties as can be."""

from collections.abc import Sequence
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from longtail.models.labels.selection import Selection
from longtail.models.ranking.threshold_algorithm import SUM, rank
from longtail.models.ranking.top_k import (
    NO_LABEL,
    ListedSource,
    Ranking,
    Source,
    nothing,
    top_of_scores,
)
from tests.rankings import DenseSource, assert_same, shallow

NO_SCORE = -np.inf
# Few values, so that scores tie; sums of the latter depend on their order.
TIED = st.sampled_from([NO_SCORE, -1.0, 0.0, 1.0, 2.0])
ROUNDED = st.sampled_from([NO_SCORE, 0.1, 0.2, 0.3, 1e8, -1e8, 3.3])


def dense_scores(
    rows: int, labels: int, elements: st.SearchStrategy[float] = TIED
) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.float32, (rows, labels), elements=elements)


def sorted_fully(scores: np.ndarray, k: int) -> Ranking:
    """The oracle: Python's sort of all labels that have a score."""
    labels = np.full((len(scores), k), NO_LABEL, dtype=np.int64)
    best = np.full((len(scores), k), NO_SCORE, dtype=np.float32)
    for row, values in enumerate(scores.tolist()):
        order = sorted((-score, label) for label, score in enumerate(values) if score > NO_SCORE)
        for place, (negated, label) in enumerate(order[:k]):
            labels[row, place], best[row, place] = label, -negated
    return Ranking(labels, best)


def summed(sources: Sequence[DenseSource], k: int) -> Ranking:
    return rank([sources], SUM, k, sources[0].scores.shape[1])


def total_of(all_scores: Sequence[np.ndarray]) -> np.ndarray:
    total = np.zeros_like(all_scores[0])
    for scores in all_scores:
        total = total + scores
    return total


@given(dense_scores(3, 7), st.integers(1, 10))
def test_top_of_scores_is_a_full_sort(scores, k):
    before = scores.copy()
    assert_same(top_of_scores(scores, k), sorted_fully(scores, k))
    np.testing.assert_array_equal(scores, before)


def test_a_source_that_scores_none_of_the_selected_labels_is_not_read():
    scores = np.where(np.arange(100) < 90, np.arange(100, dtype=np.float32), np.float32(NO_SCORE))
    source = DenseSource(np.tile(scores, (3, 1)))
    with shallow(1):
        found = rank([[source]], SUM, 2, 100, Selection(np.arange(100) >= 90))
        assert_same(found, nothing(3, 2))
        assert not source.touched
        one = rank([[source]], SUM, 2, 100, Selection(np.isin(np.arange(100), [89, 95])))
    assert one.labels.tolist() == [[89, NO_LABEL]] * 3


@settings(max_examples=100)
@given(data=st.data(), elements=st.sampled_from([TIED, ROUNDED]), num_sources=st.integers(1, 4))
def test_the_threshold_algorithm_gives_what_a_full_sort_of_the_sums_gives(
    data, elements, num_sources
):
    rows, labels = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 20))
    scores = [data.draw(dense_scores(rows, labels, elements)) for _ in range(num_sources)]
    k = data.draw(st.integers(1, labels + 2))
    with shallow(1):  # many rounds even of few labels
        found = summed([DenseSource(one) for one in scores], k)
    assert_same(found, sorted_fully(total_of(scores), k))


@pytest.mark.parametrize("k", [1, 10, 100])
@pytest.mark.parametrize("correlation", [-1.0, 0.0, 0.9])
def test_large_rankings_are_exact_whatever_the_sources_correlation(k, correlation):
    rng = np.random.default_rng(k)
    base, noise = rng.normal(size=(2, 4, 2000)).astype(np.float32)
    scores = [base, np.float32(correlation) * base + np.float32(0.3) * noise]
    found = summed([DenseSource(one) for one in scores], k)
    assert_same(found, sorted_fully(total_of(scores), k))


def test_correlated_sources_are_asked_about_few_labels():
    rng = np.random.default_rng(0)
    base = rng.normal(size=(1, 10_000)).astype(np.float32)
    noise = rng.normal(size=(2, 1, 10_000)).astype(np.float32)
    sources = [DenseSource(base + np.float32(0.2) * one) for one in noise]
    found = summed(sources, 5)
    assert_same(found, sorted_fully(total_of([source.scores for source in sources]), 5))
    assert max(len(source.touched) for source in sources) < 500


def test_an_unseen_label_that_ties_with_the_best_seen_wins_by_its_smaller_index():
    # Two deep, the sources name 5 and 0, 3 and 1; the best of them, 5, has a total of 10, and so
    # has the frontier: label 2, which no source has named yet.
    first = np.array([[5, 0, 5, 0, 0, 6]], dtype=np.float32)
    second = np.array([[0, 5, 5, 7, 0, 4]], dtype=np.float32)
    with shallow(4):
        found = summed([DenseSource(first), DenseSource(second)], 1)
    assert found.labels.tolist() == [[2]]


SCORES = st.sampled_from([NO_SCORE, NO_SCORE, 0.0, -0.0, 1.0, -2.5, 3.25])


def listed(dense: np.ndarray) -> csr_array:
    """The same as a sparse matrix, whose entries may be 0."""
    rows, columns = np.nonzero(dense > NO_SCORE)
    starts = np.searchsorted(rows, np.arange(len(dense) + 1))
    return csr_array((dense[rows, columns], columns, starts), shape=dense.shape)


DENSE = st.tuples(st.integers(0, 4), st.integers(1, 9)).flatmap(
    lambda shape: arrays(np.float32, shape, elements=SCORES)
)


@settings(max_examples=80)
@given(dense=DENSE, m=st.integers(1, 12), data=st.data())
def test_the_best_labels_are_those_of_all(dense, m, data):
    source = ListedSource(listed(dense))
    assert isinstance(source, Source)
    assert source.num_queries == len(dense)
    assert source.num_labels == max(1, (dense > NO_SCORE).sum(axis=1).max(initial=0))
    rows = np.array(data.draw(st.lists(st.sampled_from(range(len(dense))))) if len(dense) else [],
                    dtype=np.int64)  # fmt: skip
    found, wanted = source.top(rows, m), top_of_scores(dense[rows], m)
    np.testing.assert_array_equal(found.labels, wanted.labels)
    np.testing.assert_array_equal(found.scores, wanted.scores)
    again = source.score(rows, found.labels)
    np.testing.assert_array_equal(again, found.scores)


@settings(max_examples=80)
@given(first=DENSE, k=st.integers(1, 9), data=st.data())
def test_it_is_ranked_alone_among_some_and_in_sums(first, k, data):
    """By both ways: all scored, or by sorted access."""
    shape = first.shape
    second = data.draw(arrays(np.float32, shape, elements=SCORES))
    some = np.array(data.draw(st.lists(st.booleans(), min_size=shape[1], max_size=shape[1])))
    selection = data.draw(st.sampled_from([None, Selection(some)])) if some.any() else None
    sources = [ListedSource(listed(each)) for each in (first, second)]
    for total, own in ((first, sources[:1]), (first + second, sources)):
        masked = total.copy()
        if selection is not None:
            masked[:, ~some] = NO_SCORE
        wanted = top_of_scores(masked, k)
        for up_to in (0, 1024):
            with (
                mock.patch("longtail.models.ranking.threshold_algorithm._FIRST_DEPTH", 1),
                mock.patch("longtail.models.ranking.top_k._ALWAYS_UP_TO", up_to),
                mock.patch("longtail.models.ranking.top_k._SHARE", 1 if up_to else 10**9),
            ):
                found = rank([own], SUM, k, shape[1], selection)
            np.testing.assert_array_equal(found.labels, wanted.labels)
            np.testing.assert_array_equal(found.scores, wanted.scores)
