"""Findings of papers, tested on made-up trials, against scipy's paired t-test."""

from __future__ import annotations

import pytest
from scipy.stats import ttest_rel

from training.experiments.findings import Finding, findings_table, run_tests
from training.experiments.trials import Estimate

FOUND = {
    "task": {
        "good": {"R": Estimate((0.5, 0.6, 0.55)), "error": Estimate((0.1, 0.1))},
        "near": {"R": Estimate((0.45, 0.58, 0.52)), "error": Estimate((0.2, 0.2))},
        "far": {"R": Estimate((0.1, 0.2, 0.15)), "error": Estimate((0.2, 0.4))},
        "lone": {"R": Estimate((0.3,))},
    }
}


def finding(better: str, *others: str, figure: str = "R", lower: bool = False) -> Finding:
    return Finding("a claim", "task", figure, better, others, lower)


def test_the_advantage_is_over_the_nearest_rival_with_the_p_value_of_a_paired_t_test() -> None:
    (tested,) = run_tests(FOUND, [finding("good", "far", "near")])
    wanted = ttest_rel((0.5, 0.6, 0.55), (0.45, 0.58, 0.52), alternative="greater")
    assert tested.rival == "near"
    assert tested.p_value == pytest.approx(wanted.pvalue)
    assert tested.advantage.values == pytest.approx((0.05, 0.02, 0.03))
    assert tested.verdict == "holds"


@pytest.mark.parametrize(
    ("asked", "p_value", "verdict"),
    [
        (finding("near", "good"), 1 - 0.0315, "contrary"),
        (finding("near", "far"), 0.0, "holds"),
        (finding("good", "lone"), None, "one seed"),
        (finding("lone", "good"), None, "does not hold"),
        (finding("good", "near", figure="error", lower=True), 0.0, "holds"),
        (finding("near", "good", figure="error", lower=True), 1.0, "contrary"),
        (finding("good", "far", figure="error", lower=True), 0.1476, "not significant"),
        (finding("good", "far", figure="error"), 0.8524, "does not hold"),
    ],
)
def test_verdicts(asked: Finding, p_value: float | None, verdict: str) -> None:
    (tested,) = run_tests(FOUND, [asked])
    assert tested.verdict == verdict
    if p_value is None:
        assert tested.p_value is None
    else:
        assert tested.p_value == pytest.approx(p_value, abs=2e-3)


def test_settings_that_were_not_run_are_left_out() -> None:
    asked = [
        finding("good", "unknown"),
        finding("unknown", "good"),
        finding("good", "lone", figure="error"),
        Finding("a claim", "another task", "R", "good", ("near",)),
        finding("good", "unknown", "near"),
    ]
    (tested,) = run_tests(FOUND, asked)
    assert tested.rival == "near"


def test_the_table_has_a_row_for_each() -> None:
    asked = [finding("good", "near"), finding("near", "far"), finding("good", "lone")]
    table = findings_table(run_tests(FOUND, asked))
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]
    names = ["a claim", "task, R"]
    assert rows == [
        [*names, "good", "near", "3.33 ± 0.88", "0.032", "holds"],
        [*names, "near", "far", "36.67 ± 0.88", "< 0.001", "holds"],
        [*names, "good", "lone", "20.00", "-", "one seed"],
    ]
