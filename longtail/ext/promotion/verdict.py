"""The verdict on a candidate by held-out documents: figures, reasons, a report."""

from __future__ import annotations

from dataclasses import dataclass

from longtail.ext.promotion.paired import PairedTest
from longtail.training.evaluation.record import NOT_MEASURED, markdown_table


@dataclass(frozen=True, slots=True)
class Check:
    """One figure of both versions besides the metrics.

    Attributes:
        name: What was measured, with its unit.
        current: Figure of the current version; None where there is none.
        candidate: Figure of the candidate.
        limit: What is asked for, in words.
        objection: Why it speaks against the candidate; None where it doesn't.
    """

    name: str
    current: float | int | None
    candidate: float | int | None
    limit: str
    objection: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a candidate may go on, and why.

    Attributes:
        reasons: Why not, in sentences; empty where it may.
        tests: Metrics, paired.
        checks: Speed, size, calibration, labels.
        notes: What else to know of how it was measured.
    """

    reasons: tuple[str, ...]
    tests: tuple[PairedTest, ...] = ()
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def has_passed(self) -> bool:
        """Whether nothing speaks against the candidate."""
        return not self.reasons

    def to_markdown(self) -> str:
        """Return the figures as two tables, metrics in percent, then notes."""
        parts = []
        if self.tests:
            header = ["metric", "documents", "current", "candidate", "difference"]
            header += ["p(worse by the margin)", "p(not better)", "p(not worse)"]
            parts.append(markdown_table(header, [_row(test) for test in self.tests]))
        if self.checks:
            header = ["check", "current", "candidate", "asked for"]
            rows = [[x.name, _shown(x.current), _shown(x.candidate), x.limit] for x in self.checks]
            parts.append(markdown_table(header, rows))
        if self.notes:
            parts.append("\n".join(f"Note: {note}." for note in self.notes))
        return "\n\n".join(parts)


def _row(test: PairedTest) -> list[str]:
    figures = (test.current, test.candidate)
    p_values = (test.p_worse_by_margin, test.p_equal_or_worse, test.p_equal_or_better)
    return [
        test.name,
        f"{test.num_documents:,}",
        *(f"{100 * figure:.2f}" for figure in figures),
        f"{100 * test.difference:+.2f}",
        *(f"{p:.2g}" for p in p_values),
    ]


def _shown(figure: float | int | None) -> str:
    return NOT_MEASURED if figure is None else f"{figure:.4g}"
