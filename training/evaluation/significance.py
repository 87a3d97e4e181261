"""Significance tests between two rankings (Yang & Liu 1999, section 4), and many of them at once.

Both are one-sided: a small p-value says that the first ranking is better than the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool
from scipy import stats

from longtail.models.errors import DataError
from longtail.models.metrics import RankedEvaluation, label_f1_at
from longtail.models.ranking.top_k import NO_LABEL

_ROUNDING = 1e-12  # differences of F1 closer than this are equal


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of one test.

    Attributes:
        num_compared: What the test counts: labels in the t-test, decisions on which the two
            rankings differ in the sign test.
        advantage: Advantage of the first ranking: the mean difference of F1 in the t-test, the
            share of the counted decisions that it got right, minus one half, in the sign test.
        p_value: Probability of an advantage this large or larger if there were none.
    """

    num_compared: int
    advantage: float
    p_value: float


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted for how many were looked at (Holm 1979).

    With those below a level taken for true, the probability of one that is not is at most that
    level, whatever the tests have to do with each other: of n p-values, the i-th smallest (from 0)
    times n - i, and no less than that of a smaller one.

    Args:
        p_values: p-values of all tests that were made; None, which stays, where one could not be.
    """
    tested = [(p_value, place) for place, p_value in enumerate(p_values) if p_value is not None]
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p_value, place) in enumerate(sorted(tested)):
        largest = max(largest, min(1.0, (len(tested) - rank) * p_value))
        adjusted[place] = largest
    return adjusted


def macro_t_test(
    first: RankedEvaluation,
    second: RankedEvaluation,
    k: int,
    is_in_subset: Bool[np.ndarray, label] | None = None,
) -> Comparison:
    """Macro t-test: a paired t-test on the F1@k of each label (Yang & Liu 1999).

    Over all labels of the subset, those with equal F1 included. If no two differences differ, there
    is no variance to test with: the p-value is 1 for no advantage of the first, else 0.

    Args:
        first: The ranking that may be better, beside the truth.
        second: The one to compare it with, beside the same truth.
        k: Labels of a document that count.
        is_in_subset: The labels to compare on; all of them by default.
    """
    _check_same_truth(first, second)
    pair = [label_f1_at(joined, k) for joined in (first, second)]
    if is_in_subset is not None:
        pair = [f1[is_in_subset] for f1 in pair]
    differences = pair[0] - pair[1]
    if len(differences) < 2:
        raise DataError(f"macro t-test: got {len(differences)} labels, expected at least 2")
    advantage = float(differences.mean())
    if np.ptp(differences) < _ROUNDING:
        return Comparison(len(differences), advantage, 0.0 if advantage > 0 else 1.0)
    tested = stats.ttest_1samp(differences, 0.0, alternative="greater")
    return Comparison(len(differences), advantage, float(tested.pvalue))


def micro_sign_test(first: RankedEvaluation, second: RankedEvaluation, k: int) -> Comparison:
    """Micro sign test: a binomial test on the decisions that one of the two got right alone.

    A decision is whether a document carries a label; a ranking says yes to its first k labels. Of
    the (document, label) pairs on which they decide differently, one of the two is right; without
    an advantage each is so with probability 1/2 (Yang & Liu 1999). Without such a pair the p-value
    is 1.

    Args:
        first: The ranking that may be better, beside the truth.
        second: The one to compare it with, beside the same truth.
        k: Labels of a document that count.
    """
    _check_same_truth(first, second)
    first_hits, first_misses = _decisions(first, k)
    second_hits, second_misses = _decisions(second, k)
    num_better = len(first_hits - second_hits) + len(second_misses - first_misses)
    num_worse = len(second_hits - first_hits) + len(first_misses - second_misses)
    num_compared = num_better + num_worse
    if num_compared == 0:
        return Comparison(0, 0.0, 1.0)
    tested = stats.binomtest(num_better, num_compared, 0.5, alternative="greater")
    return Comparison(num_compared, num_better / num_compared - 0.5, float(tested.pvalue))


def _decisions(joined: RankedEvaluation, k: int) -> tuple[set[int], set[int]]:
    """Return the pairs, as document * num_labels + label, said yes to rightly and wrongly."""
    labels, is_hit = joined.top(k)
    pairs = np.arange(joined.num_documents)[:, None] * joined.num_labels + labels
    is_miss = ~is_hit & (labels != NO_LABEL)
    return set(pairs[is_hit].tolist()), set(pairs[is_miss].tolist())


def _check_same_truth(first: RankedEvaluation, second: RankedEvaluation) -> None:
    if not (
        np.array_equal(first.true_rows, second.true_rows)
        and np.array_equal(first.true_labels, second.true_labels)
        and (first.num_documents, first.num_labels) == (second.num_documents, second.num_labels)
    ):
        raise DataError(
            "significance: the two rankings were joined with different truths; join both with one"
        )
