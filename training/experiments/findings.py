"""What a paper found, tested on the trials of an experiment: differences paired by seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from training.evaluation.tables import markdown_table
from training.experiments.trials import Estimate, Found

SIGNIFICANT = 0.05
"""A finding holds where the p-value is below this."""

_ROUNDING = 1e-12  # differences closer to each other than this are equal


@dataclass(frozen=True, slots=True)
class Finding:
    """That one setting is better than each of some others.

    Attributes:
        claim: In words.
        task: Where.
        figure: By what.
        better: The setting.
        others: What it is better than.
        lower_is_better: Whether the figure is an error.
    """

    claim: str
    task: str
    figure: str
    better: str
    others: tuple[str, ...]
    lower_is_better: bool = False


@dataclass(frozen=True, slots=True)
class Tested:
    """A finding, tested.

    Attributes:
        finding: Which.
        rival: That of the others which comes nearest: with the largest p-value.
        advantage: Over the rival, mean and standard error over the seeds; positive where the
            finding holds.
        p_value: Probability of such an advantage if there were none over at least one of the
            others: the largest of the one-sided p-values of the paired t-tests over the seeds (the
            intersection-union test of Berger 1982). None for a single seed.
    """

    finding: Finding
    rival: str
    advantage: Estimate
    p_value: float | None

    @property
    def verdict(self) -> str:
        """In words."""
        if self.advantage.mean <= 0:
            is_contrary = self.p_value is not None and self.p_value > 1 - SIGNIFICANT
            return "contrary" if is_contrary else "does not hold"
        if self.p_value is None:
            return "one seed"
        return "holds" if self.p_value < SIGNIFICANT else "not significant"


def run_tests(found: Found, findings: Iterable[Finding]) -> list[Tested]:
    """Test the findings whose settings have been run; others are left out.

    Args:
        found: Estimates by task, setting and figure.
        findings: In the order wanted.
    """
    tested = []
    for finding in findings:
        settings = found.get(finding.task, {})
        others = [name for name in finding.others if finding.figure in settings.get(name, {})]
        if others and finding.figure in settings.get(finding.better, {}):
            tested.append(_test(finding, settings, others))
    return tested


def _test(
    finding: Finding, settings: Mapping[str, Mapping[str, Estimate]], others: list[str]
) -> Tested:
    advantages = [
        _paired(
            settings[finding.better][finding.figure],
            settings[name][finding.figure],
            -1 if finding.lower_is_better else 1,
        )
        for name in others
    ]
    p_values = [p_value_of(advantage) for advantage in advantages]
    nearest = max(range(len(others)), key=lambda i: (p_values[i] or 0.0, -advantages[i].mean))
    return Tested(finding, others[nearest], advantages[nearest], p_values[nearest])


def _paired(first: Estimate, second: Estimate, sign: int) -> Estimate:
    """Return the differences over the seeds that both have; they begin with the same one."""
    pairs = zip(first.values, second.values, strict=False)
    return Estimate(tuple(sign * (a - b) for a, b in pairs))


def p_value_of(advantage: Estimate) -> float | None:
    """Return the p-value of the one-sided t-test that the mean is above 0; None for a single seed.

    Where all seeds agree there is no variance to test with: 0 for an advantage, else 1.
    """
    if len(advantage.values) == 1:
        return None
    if np.ptp(advantage.values) < _ROUNDING:
        return 0.0 if advantage.mean > 0 else 1.0
    return float(stats.ttest_1samp(advantage.values, 0.0, alternative="greater").pvalue)


def findings_table(tested: Iterable[Tested]) -> str:
    """Return a markdown table; advantages in points of percent."""
    rows = [
        [
            each.finding.claim,
            f"{each.finding.task}, {each.finding.figure}",
            each.finding.better,
            each.rival,
            str(each.advantage),
            "-" if each.p_value is None else _p_text(each.p_value),
            each.verdict,
        ]
        for each in tested
    ]
    header = ["finding", "by", "better", "than, nearest", "advantage", "p", "here"]
    return markdown_table(header, rows)


def _p_text(p_value: float) -> str:
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"
