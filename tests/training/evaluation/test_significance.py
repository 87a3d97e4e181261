"""Significance tests against their definitions."""

from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array

from longtail.models.metrics import join_truth, label_f1_at
from longtail.training.evaluation.significance import holm, macro_t_test, micro_sign_test


@pytest.fixture
def judged_pair():
    rng = np.random.default_rng(5)
    dense = (rng.random((40, 9)) < 0.3).astype(np.float32)
    better, worse = (
        np.argsort(-(dense * skill + rng.random((40, 9))), axis=1)[:, :4] for skill in (0.9, 0.1)
    )
    return join_truth(better, csr_array(dense)), join_truth(worse, csr_array(dense))


def test_macro_t_test_is_the_paired_t_test_on_label_f1(judged_pair):
    first, second = judged_pair
    is_in_subset = np.arange(9) < 7
    tested = macro_t_test(first, second, 3, is_in_subset)
    expected = stats.ttest_rel(
        label_f1_at(first, 3)[:7], label_f1_at(second, 3)[:7], alternative="greater"
    )
    assert tested.p_value == pytest.approx(expected.pvalue)
    assert tested.num_compared == 7
    assert tested.advantage > 0


def test_micro_sign_test_counts_the_decisions_that_one_got_right_alone(judged_pair):
    first, second = judged_pair
    truth = set(zip(first.true_rows.tolist(), first.true_labels.tolist(), strict=True))
    wins = [0, 0]
    for row, label in product(range(40), range(9)):
        said = [label in judged.labels[row, :3] for judged in judged_pair]
        if said[0] != said[1]:
            wins[0 if said[0] == ((row, label) in truth) else 1] += 1
    tested = micro_sign_test(first, second, 3)
    assert tested.num_compared == sum(wins)
    assert tested.advantage == pytest.approx(wins[0] / sum(wins) - 0.5)
    assert tested.p_value == pytest.approx(stats.binom.sf(wins[0] - 1, sum(wins), 0.5))


@pytest.mark.parametrize("test", [macro_t_test, micro_sign_test])
def test_the_better_ranking_is_significant_one_way_only(test, judged_pair):
    first, second = judged_pair
    assert test(first, second, 3).p_value < 0.05
    assert test(second, first, 3).p_value > 0.95


def test_holm_multiplies_by_the_tests_that_are_left():
    # 4 x 0.01, 3 x 0.012 (raised to the one before), 2 x 0.03 and 1 x 0.9; None is no test.
    assert holm([0.03, None, 0.01, 0.9, 0.012]) == pytest.approx([0.06, None, 0.04, 0.9, 0.04])
    assert holm([0.4, 0.9]) == [0.8, 0.9]
    assert holm([0.9, 0.7]) == [1.0, 1.0]
    assert holm([]) == []
