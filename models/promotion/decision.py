"""Who is on trial, and what a trial came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from longtail.models.promotion.log import PromotionLog
from longtail.models.promotion.rules import PromotionRules


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


class TryOnService(Protocol):
    """Tries a candidate on a running service, and carries out what that comes to."""

    def __call__(
        self,
        url: str,
        key: str | None,
        log: PromotionLog,
        pair: Pair,
        rules: PromotionRules,
        texts: Sequence[str],
    ) -> Decision:
        """Try a candidate, or go on with a trial that was stopped.

        Args:
            url: Of the service.
            key: An admin key; None where it needs none.
            log: Where every step is written.
            pair: Both versions.
            rules: Of the canary.
            texts: Held-out texts that both versions are asked about.

        Raises:
            LongtailError: Nothing was begun, or what was begun is not finished; says which.
        """
        ...
