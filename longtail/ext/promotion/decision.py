"""The versions of a trial, and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Pair:
    """Two versions of a registry.

    Attributes:
        candidate: Number of the version on trial.
        current: Number of the version that it may replace.
        candidate_digest: Digest of the candidate; empty if its manifest can't be read.
        current_digest: Digest of the current version.
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
    """The outcome of a trial.

    Attributes:
        promote: Whether the candidate replaces the current version.
        reasons: The reasons, as sentences.
        figures: The measured figures, as JSON values.
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
