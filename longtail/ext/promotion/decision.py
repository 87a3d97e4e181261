"""Who is on trial, and what a trial came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


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
