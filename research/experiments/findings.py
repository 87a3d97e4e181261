"""What a paper found, tested on the trials of an experiment: differences paired by seed.

All findings of a table are corrected for their number, so that one that "holds" does not do so only
because many were looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from longtail.training.evaluation.significance import holm
from research.experiments.trials import Estimate, Found, estimate_record

SIGNIFICANT = 0.05
"""A finding holds where the corrected p-value is below this."""

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
        is_expected: Whether a paper gives the direction, which is then tested alone; else p is
            two-sided.
    """

    claim: str
    task: str
    figure: str
    better: str
    others: tuple[str, ...]
    lower_is_better: bool = False
    is_expected: bool = True


@dataclass(frozen=True, slots=True)
class Tested:
    """A finding, tested beside the others of its table.

    Attributes:
        finding: Which.
        rival: That of the others which comes nearest: with the largest p-value.
        advantage: Over the rival, mean and standard error over the seeds; positive where the
            finding holds.
        p_value: Probability of such an advantage if there were none over at least one of the
            others: the largest of the p-values of the paired t-tests over the seeds (the
            intersection-union test of Berger 1982), one-sided where a paper gives the direction.
            None where one of the others shares a single seed with it.
        corrected: The same, corrected for the findings of the table (Holm).
        corrected_contrary: That at least one of the others is better, which no paper says: the
            two-sided p-value, corrected for the others (Bonferroni) and the findings (Holm).
    """

    finding: Finding
    rival: str
    advantage: Estimate
    p_value: float | None
    corrected: float | None
    corrected_contrary: float | None

    @property
    def verdict(self) -> str:
        """In words, which depend on the evidence alone: not on a sign that may be chance."""
        if self.corrected is None or self.corrected_contrary is None:
            return "one seed"
        if self.corrected < SIGNIFICANT:
            return "holds"
        return "contrary" if self.corrected_contrary < SIGNIFICANT else "not significant"


def run_tests(found: Found, findings: Iterable[Finding]) -> list[Tested]:
    """Test the findings whose settings have been run with a common seed; others are left out.

    Args:
        found: Estimates by task, setting and figure.
        findings: Findings of one table, in the order wanted; they are corrected for their number.
    """
    pairs = [
        (finding, advantages)
        for finding in findings
        if (advantages := _advantages(finding, found.get(finding.task, {})))
    ]
    p_values = [_p_value(finding, list(each.values())) for finding, each in pairs]
    corrected = holm(p_values)
    contrary = holm([_p_contrary(list(each.values())) for _, each in pairs])
    return [
        Tested(finding, *_nearest(advantages), *tested)
        for (finding, advantages), *tested in zip(pairs, p_values, corrected, contrary, strict=True)
    ]


def _advantages(
    finding: Finding, settings: Mapping[str, Mapping[str, Estimate]]
) -> dict[str, Estimate]:
    """Return the differences over each of the others, by seed; positive: as the finding says."""

    def estimate(name: str) -> Estimate | None:
        return settings.get(name, {}).get(finding.figure)

    better = estimate(finding.better)
    advantages = {}
    for name in finding.others if better is not None else ():
        other = estimate(name)
        pair = (other, better) if finding.lower_is_better else (better, other)
        if pair[0] is not None and pair[1] is not None and (ahead := pair[0].less(pair[1])):
            advantages[name] = ahead
    return advantages


def _nearest(advantages: Mapping[str, Estimate]) -> tuple[str, Estimate]:
    """Return the other that the evidence is weakest for; one that can't be tested comes first."""

    def weakness(name: str) -> tuple[float, float]:
        p_value = p_value_of(advantages[name])
        return 2.0 if p_value is None else p_value, -advantages[name].mean

    nearest = max(advantages, key=weakness)
    return nearest, advantages[nearest]


def _p_value(finding: Finding, advantages: Sequence[Estimate]) -> float | None:
    """Return the p-value that all are above 0; None where one can't be tested."""
    p_values = [p_value_of(advantage) for advantage in advantages]
    if None in p_values:
        return None
    largest = max(p_value for p_value in p_values if p_value is not None)
    return largest if finding.is_expected else min(1.0, 2 * largest)


def _p_contrary(advantages: Sequence[Estimate]) -> float | None:
    """Return the p-value, two-sided, that at least one is below 0; None as for `_p_value`."""
    p_values = [p_value_of(_negative(advantage)) for advantage in advantages]
    if None in p_values:
        return None
    smallest = min(p_value for p_value in p_values if p_value is not None)
    return min(1.0, 2 * len(p_values) * smallest)


def _negative(estimate: Estimate) -> Estimate:
    return Estimate(tuple(-value for value in estimate.values), estimate.seeds)


def p_value_of(advantage: Estimate) -> float | None:
    """Return the p-value of the one-sided t-test that the mean is above 0; None for a single seed.

    Where all seeds agree to the digit, as figures that count few pairs may, there is no variance to
    test with: then that of the signs, 2^-n for n seeds with an advantage, else 1.
    """
    num_seeds = len(advantage.values)
    if num_seeds == 1:
        return None
    if np.ptp(advantage.values) < _ROUNDING:
        return 0.5**num_seeds if advantage.mean > 0 else 1.0
    return float(stats.ttest_1samp(advantage.values, 0.0, alternative="greater").pvalue)


_RECORD_COLUMNS = (
    "finding", "by", "better", "than, nearest", "advantage", "seeds", "p", "p, corrected", "here",
)  # fmt: skip


def findings_record(tested: Sequence[Tested]) -> dict[str, Any]:
    """Return the findings as records have tables; advantages in points of percent."""
    rows = [
        [
            each.finding.claim,
            f"{each.finding.task}, {each.finding.figure}",
            each.finding.better,
            each.rival,
            estimate_record(each.advantage),
            len(each.advantage.values),
            p_cell(each.p_value),
            p_cell(each.corrected),
            each.verdict,
        ]
        for each in tested
    ]
    return findings_as_record(rows)


def findings_as_record(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return findings as a table of a record, as the page of claims reads them.

    Args:
        rows: For each, the finding, the figure that it is tested by, what is better and than what,
            its advantage in points of percent, the number of seeds, p, p corrected, and a verdict.
    """
    columns = [
        {"name": name, "digits": 3} if name.startswith("p") else {"name": name}
        for name in _RECORD_COLUMNS
    ]
    return {"columns": columns, "rows": [list(row) for row in rows]}


def p_cell(p_value: float | None) -> float | str | None:
    """Return a p-value as a record has it, a tiny one by its bound; None where there is no test."""
    return "< 0.001" if p_value is not None and p_value < 0.001 else p_value
