"""What tells two arms of the ablations apart: differences, and the tests of Yang & Liu (1999)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from scipy.sparse import csr_array

from longtail.models.metrics import RankedEvaluation, join_truth, label_f1_at
from longtail.models.ranking.top_k import Ranking
from longtail.training.evaluation.by_frequency import TAIL_BIN, label_subsets
from longtail.training.evaluation.significance import (
    Comparison,
    holm,
    macro_t_test,
    micro_sign_test,
)
from research.experiments.findings import SIGNIFICANT
from research.experiments.trials import Estimate, Found

_KS = (5, 3, 1)


@dataclass(frozen=True, slots=True)
class Arm:
    """One ranking of the experiment, with every seed that it was run with.

    Attributes:
        scorer: Scorer of a model.
        setting: That it was trained in.
    """

    scorer: str
    setting: str


@dataclass(frozen=True, slots=True)
class Difference:
    """One arm less another by one figure, over the seeds that both have.

    Attributes:
        advantage: Advantage of the first arm.
        p_better: That the first is better than chance makes it: the largest over the seeds, each by
            one test. None where the test has too few labels.
        p_worse: That it is worse.
    """

    advantage: Estimate
    p_better: float | None
    p_worse: float | None

    @property
    def is_same(self) -> bool:
        """Whether there is no difference at all, and so nothing to test."""
        return not any(self.advantage.values)


@dataclass(frozen=True, slots=True)
class Judged:
    """A difference, tested beside the others that are looked at with it.

    Attributes:
        difference: Which.
        p_value: That the first arm is better, one-sided, where a paper says so; else two-sided.
            None where it was not tested.
        corrected: The same, corrected for how many are looked at (Holm).
        verdict: In a word; only what every seed says is more than "no difference".
    """

    difference: Difference
    p_value: float | None
    corrected: float | None
    verdict: str


def judge(differences: Sequence[Difference], *, is_expected: bool = False) -> list[Judged]:
    """Return differences that are looked at together, corrected for their number.

    Those of two equal rankings are no tests, and count as none. What a paper expects is tested
    one-sided; the contrary, which it doesn't expect, two-sided and corrected alike.

    Args:
        differences: Differences of one table.
        is_expected: Whether a paper says that each first arm is better.
    """
    better = [None if each.is_same else each.p_better for each in differences]
    worse = [None if each.is_same else each.p_worse for each in differences]
    two_sided = [_two_sided(*pair) for pair in zip(better, worse, strict=True)]
    p_values = better if is_expected else two_sided
    corrected, contrary = holm(p_values), holm(two_sided)
    return [
        Judged(each, p_value, own, _verdict(each, own, other))
        for each, p_value, own, other in zip(
            differences, p_values, corrected, contrary, strict=True
        )
    ]


def _two_sided(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else min(1.0, 2 * min(first, second))


def _verdict(difference: Difference, corrected: float | None, contrary: float | None) -> str:
    if difference.is_same:
        return "the same"
    if corrected is None or contrary is None:
        return "not tested"
    is_ahead = difference.advantage.mean > 0
    if is_ahead and corrected < SIGNIFICANT:
        return "better"
    return "worse" if not is_ahead and contrary < SIGNIFICANT else "no difference"


JudgedPairs = dict[tuple[Arm, Arm, str], Judged]
"""By first arm, second arm and figure."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Figures and rankings of all arms.

    Attributes:
        found: Figures by scorer, setting and name.
        rank: Returns the ranking of an arm with a seed.
        truth: The labels of the documents measured on.
        training_counts: Training documents of each label.
        seconds: What a run took, by the name of the setting; without settings that have the
            configuration of another.
    """

    found: Found
    rank: Callable[[Arm, int], Ranking]
    truth: Float32[csr_array, "document label"]
    training_counts: Int64[np.ndarray, label]
    seconds: Mapping[str, Estimate] = field(default_factory=dict)
    _joined: dict[tuple[Arm, int], RankedEvaluation] = field(default_factory=dict)

    @property
    def k(self) -> int:
        """Labels of a document that the tests count: 5, as in the paper, or fewer of few labels."""
        return next(k for k in _KS if k <= self.truth.shape[1])

    @property
    def tail_f1(self) -> str:
        """The name of the figure that the macro t-test is of."""
        return f"macro-F1@{self.k} ({TAIL_BIN})"

    @property
    def precision(self) -> str:
        """The name of the figure that the micro sign test is of."""
        return f"P@{self.k}"

    def has(self, arm: Arm) -> bool:
        """Return whether this arm was run."""
        return arm.setting in self.found.get(arm.scorer, {})

    def estimate(self, arm: Arm, figure: str) -> Estimate | None:
        """Return a figure of an arm that was run; None where it could not be measured."""
        return self.found[arm.scorer][arm.setting].get(figure)

    def difference(self, first: Arm, second: Arm, figure: str) -> Difference | None:
        """Return how far the first arm is ahead, tested if the figure has a test.

        Args:
            first: An arm that was run.
            second: The one to compare it with.
            figure: `tail_f1` has the macro t-test on the labels with 1-9 training documents,
                `precision` the micro sign test; any other is not tested.

        Returns:
            None where one of them lacks the figure, or they have no seed in common.
        """
        pair = [self.estimate(arm, figure) for arm in (first, second)]
        if pair[0] is None or pair[1] is None:
            return None
        ahead = pair[0].less(pair[1])
        if ahead is None:
            return None
        better = [self._test(first, second, figure, seed) for seed in ahead.seeds]
        worse = [self._test(second, first, figure, seed) for seed in ahead.seeds]
        return Difference(ahead, _largest(better), _largest(worse))

    def judged(self, asked: Iterable[tuple[Arm, Arm, str]]) -> JudgedPairs:
        """Return the differences of two arms by a figure, corrected for how many there are.

        Args:
            asked: First arm, second arm and figure, as for `difference`; those without are left
                out.
        """
        found = {each: self.difference(*each) for each in asked}
        known = {each: difference for each, difference in found.items() if difference is not None}
        return dict(zip(known, judge(list(known.values())), strict=True))

    def label_f1(self, arm: Arm) -> Float64[np.ndarray, label]:
        """Return F1@k of each label, the mean over the seeds of an arm that was run."""
        seeds = self.found[arm.scorer][arm.setting]["P@1"].seeds
        by_seed = [label_f1_at(self._join(arm, seed), self.k) for seed in seeds]
        mean: Float64[np.ndarray, label] = np.mean(by_seed, axis=0)
        return mean

    def _test(self, first: Arm, second: Arm, figure: str, seed: int) -> Comparison | None:
        pair = self._join(first, seed), self._join(second, seed)
        if figure == self.precision:
            return micro_sign_test(*pair, self.k)
        if figure == self.tail_f1 and np.count_nonzero(self._is_tail) > 1:
            return macro_t_test(*pair, self.k, self._is_tail)
        return None

    @property
    def _is_tail(self) -> Bool[np.ndarray, label]:
        return label_subsets(self.training_counts)[TAIL_BIN]

    def _join(self, arm: Arm, seed: int) -> RankedEvaluation:
        if (arm, seed) not in self._joined:
            self._joined[arm, seed] = join_truth(self.rank(arm, seed).labels, self.truth)
        return self._joined[arm, seed]


def _largest(tests: list[Comparison | None]) -> float | None:
    """Return the largest p-value: what is below it holds in every seed; None without a test."""
    p_values = [test.p_value for test in tests if test is not None]
    return max(p_values) if len(p_values) == len(tests) else None
