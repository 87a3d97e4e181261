"""Findings of papers, tested on made-up trials, against scipy's paired t-test."""

import itertools

import numpy as np
import pytest
from scipy.stats import ttest_rel

from research.experiments.findings import Finding, run_tests
from research.experiments.trials import Estimate

FOUND = {
    "task": {
        "good": {"R": Estimate((0.5, 0.6, 0.55)), "error": Estimate((0.1, 0.1))},
        "near": {"R": Estimate((0.45, 0.58, 0.52)), "error": Estimate((0.2, 0.2))},
        "far": {"R": Estimate((0.1, 0.2, 0.16)), "error": Estimate((0.2, 0.4))},
        "lone": {"R": Estimate((0.3,))},
    }
}


def finding(better: str, *others: str, figure: str = "R", lower: bool = False) -> Finding:
    return Finding("a claim", "task", figure, better, others, lower)


def test_the_advantage_is_over_the_nearest_rival_with_the_p_value_of_a_paired_t_test():
    (tested,) = run_tests(FOUND, [finding("good", "far", "near")])
    wanted = ttest_rel((0.5, 0.6, 0.55), (0.45, 0.58, 0.52), alternative="greater")
    assert tested.rival == "near"
    assert tested.p_value == pytest.approx(wanted.pvalue)
    assert tested.advantage.values == pytest.approx((0.05, 0.02, 0.03))
    assert tested.verdict == "holds"


@pytest.mark.parametrize(
    ("asked", "p_value", "verdict"),
    [
        # Two-sided, 0.0315 the other way is 0.063; with two others tried it is twice that.
        (finding("near", "good"), 1 - 0.0315, "not significant"),
        (finding("far", "good"), 1 - 4e-4, "contrary"),
        (finding("near", "far"), 0.0, "holds"),
        (finding("good", "lone"), None, "one seed"),
        # No variance over two seeds: by their signs alone.
        (finding("good", "near", figure="error", lower=True), 1 / 4, "not significant"),
        # The same evidence either way has the same words.
        (finding("good", "far", figure="error", lower=True), 0.1476, "not significant"),
        (finding("good", "far", figure="error"), 0.8524, "not significant"),
    ],
)
def test_verdicts(asked, p_value, verdict):
    (tested,) = run_tests(FOUND, [asked])
    assert tested.verdict == verdict
    if p_value is None:
        assert tested.p_value is None
    else:
        assert tested.p_value == pytest.approx(p_value, abs=2e-3)


def test_findings_are_corrected_for_how_many_were_looked_at():
    asked = [finding("good", "near"), finding("near", "far"), finding("near", "good")]
    alone = [run_tests(FOUND, [each])[0].p_value for each in asked]
    tested = run_tests(FOUND, asked)
    assert [each.p_value for each in tested] == alone
    assert tested[0].corrected == pytest.approx(2 * alone[0])
    assert [each.verdict for each in tested] == ["not significant", "holds", "not significant"]


def test_a_finding_of_nothing_holds_by_chance_no_more_often_than_the_level_says():
    rng = np.random.default_rng(0)
    names = [f"s{i}" for i in range(10)]
    asked = [finding(a, b) for a, b in itertools.pairwise(names)]
    told = []
    for _ in range(300):
        settings = {name: {"R": Estimate(tuple(rng.normal(size=3)))} for name in names}
        verdicts = {each.verdict for each in run_tests({"task": settings}, asked)}
        told.append(("holds" in verdicts, "contrary" in verdicts))
    # 5 % of 300 are 15; four standard errors of the count are another 15.
    assert all(count <= 30 for count in np.sum(told, axis=0))
