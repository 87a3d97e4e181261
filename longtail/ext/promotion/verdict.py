"""The verdict on a candidate by held-out documents: figures, reasons, a report, the decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from longtail.ext.promotion.paired import PairedTest
from longtail.training.evaluation.record import NOT_MEASURED, markdown_table


@dataclass(frozen=True, slots=True)
class Check:
    """One figure of both versions besides the metrics.

    Attributes:
        name: What was measured, with its unit.
        current: Of the current version; None where there is none.
        candidate: Of the candidate.
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
        data: What was measured on: the fingerprint of the corpus, its split, and the documents.
    """

    reasons: tuple[str, ...]
    tests: tuple[PairedTest, ...] = ()
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_passed(self) -> bool:
        """Whether nothing speaks against the candidate."""
        return not self.reasons

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain dictionaries; metrics are fractions."""
        return {"verdict": "passed" if self.has_passed else "refused", **asdict(self)}

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


@dataclass(frozen=True, slots=True)
class Pair:
    """Two versions of a registry.

    Attributes:
        candidate: Number of the version on trial.
        current: Number of the one that it is to replace.
        candidate_digest: Digest of the one; empty where its manifest can't be read.
        current_digest: Digest of the other.
    """

    candidate: int
    current: int
    candidate_digest: str
    current_digest: str

    def to_json(self) -> dict[str, Any]:
        """Return the fields that every line of the log has."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a trial came to.

    Attributes:
        promote: Whether the candidate takes the place of the current version.
        reasons: Why, in sentences.
        figures: What was measured, plain.
    """

    promote: bool
    reasons: tuple[str, ...]
    figures: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the fields of a line of the log."""
        verdict = "promote" if self.promote else "roll back"
        return {"verdict": verdict, "reasons": list(self.reasons), "figures": dict(self.figures)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Decision:
        """Read what `to_json` returned."""
        reasons = tuple(content["reasons"])
        return cls(content["verdict"] == "promote", reasons, content["figures"])
