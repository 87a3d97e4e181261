"""Metrics of feedback: how many entries came, and what they say of frequent and rare labels."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter as Tally
from typing import TypeAlias

from prometheus_client import CollectorRegistry, Counter, Summary

BANDS = ("0", "1", "2-9", "10-99", "100+")
_LOWER_BOUNDS = (1, 2, 10, 100)
"""Training documents from which on a label is in the next band."""
Verdicts: TypeAlias = Tally[tuple[str, str]]
"""Labels by what was said of them and their band of frequency."""


def band_of(training_count: int) -> str:
    """Return the band of frequency of a label with so many training documents."""
    return BANDS[bisect_right(_LOWER_BOUNDS, training_count)]


class FeedbackMetrics:
    """What is stored of feedback, as Prometheus metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the metrics."""
        self._entries = Counter(
            "longtail_feedback_entries",
            "Entries of feedback that were acknowledged: stored, or known before.",
            ("outcome",),
            registry=registry,
        )
        self._labels = Counter(
            "longtail_feedback_labels",
            "Labels in stored entries: accepted, rejected or added, by training documents.",
            ("verdict", "training_documents"),
            registry=registry,
        )
        self._promised = Counter(
            "longtail_feedback_promised_labels",
            "Labels in stored entries that the answer had accepted by a promise: accepted or "
            "rejected by people.",
            ("verdict",),
            registry=registry,
        )
        self._owed = Counter(
            "longtail_feedback_promised_labels_owed",
            "How many of these labels are right where each promise is just kept: the sum of their "
            "promised precisions.",
            registry=registry,
        )
        self._accepted_share = Summary(
            "longtail_feedback_accepted_share",
            "Share of the labels of an entry that were accepted, of those that were accepted or "
            "rejected, by the model version whose labels they are.",
            ("version",),
            registry=registry,
        )

    def count(self, version: int, verdicts: Verdicts, *, is_new: bool) -> None:
        """Count an entry that was acknowledged, and its labels if it is new.

        Args:
            version: Whose labels they are.
            verdicts: Its labels by verdict (`accepted`, `rejected`, `added`) and band.
            is_new: Whether it was stored now, and not before.
        """
        self._entries.labels("stored" if is_new else "known").inc()
        for (verdict, band), number in verdicts.items() if is_new else ():
            self._labels.labels(verdict, band).inc(number)
        accepted, rejected = (_total(verdicts, name) for name in ("accepted", "rejected"))
        if is_new and accepted + rejected:
            share = accepted / (accepted + rejected)
            self._accepted_share.labels(str(version)).observe(share)

    def count_promised(self, accepted: int, rejected: int, precision: float) -> None:
        """Count the labels of a new entry that a promise had accepted.

        Args:
            accepted: Those that people accepted, too.
            rejected: The others.
            precision: That the promise is of.
        """
        self._promised.labels("accepted").inc(accepted)
        self._promised.labels("rejected").inc(rejected)
        self._owed.inc(precision * (accepted + rejected))


def _total(verdicts: Verdicts, verdict: str) -> int:
    return sum(number for (name, _), number in verdicts.items() if name == verdict)
