"""Label subsets of a step, and hard negatives, against loops and by counting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.stats import chisquare

from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.neural.batching import LabelSubsets, hard_negatives

NO_HARD = np.empty((2, 0), dtype=np.int64)


def truth_of(positives: list[list[int]], num_labels: int) -> csr_array:
    dense = np.zeros((len(positives), num_labels), dtype=np.float32)
    for row, labels in enumerate(positives):
        dense[row, labels] = 1
    return csr_array(dense)


def draw(
    positives: list[list[int]], hard: list[list[int]], size: int, *, num_labels=30, seed=0
) -> list[int]:
    hard_array = np.array(hard, dtype=np.int64).reshape(len(positives), -1)
    subsets = LabelSubsets(truth_of(positives, num_labels), hard_array, size)
    rows = np.arange(len(positives))
    return subsets.draw(rows, np.random.default_rng(seed)).tolist()


@given(
    st.lists(st.lists(st.integers(0, 29), max_size=6), min_size=1, max_size=5),
    st.integers(1, 40),
    st.integers(0, 9),
)
def test_a_subset_holds_all_positives_once_in_rising_order_and_has_its_size(positives, size, seed):
    drawn = draw(positives, [[] for _ in positives], size, seed=seed)
    wanted = {label for labels in positives for label in labels}
    assert wanted <= set(drawn)
    assert drawn == sorted(set(drawn))
    assert len(drawn) == max(min(size, 30), len(wanted))


@pytest.mark.parametrize("seed", range(5))
def test_hard_negatives_come_by_rank_before_uniform_draws(seed):
    hard = [[11, 12], [13, 14]]
    assert set(draw([[1], [2]], hard, size=4, seed=seed)) == {1, 2, 11, 13}
    drawn = set(draw([[1], [2]], hard, size=5, seed=seed))
    assert {1, 2, 11, 13} < drawn
    assert drawn & {12, 14}


def test_random_fill_is_uniform_over_the_labels_that_are_left():
    rng = np.random.default_rng(12)
    subsets = LabelSubsets(truth_of([[0], [1]], 20), NO_HARD, 7)
    counts = np.zeros(20)
    for _ in range(2000):
        counts[subsets.draw(np.arange(2), rng)] += 1
    assert counts[:2].tolist() == [2000, 2000]
    # Draws without replacement vary less than the test assumes, so it is on the safe side.
    assert chisquare(counts[2:]).pvalue > 0.01


@given(st.integers(0, 2**32 - 1), st.integers(0, 6))
def test_hard_negatives_equal_a_loop(seed, count):
    rng = np.random.default_rng(seed)
    ranked = np.array([rng.permutation(8) for _ in range(4)])
    ranked[:, 6:] = NO_LABEL
    truth = csr_array((rng.random((4, 8)) < 0.3).astype(np.float32))
    expected = []
    for row, carried in zip(ranked.tolist(), truth.toarray(), strict=True):
        wrong = [label for label in row if label != NO_LABEL and not carried[label]][:count]
        expected.append(wrong + [NO_LABEL] * (count - len(wrong)))
    assert hard_negatives(ranked, truth, count).tolist() == expected
