"""The report of `longtail feedback report`: feedback of a period.

The store of feedback is its only source: it has times, versions and verdicts, and outlives the
service, whose metrics are reset at each start.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from longtail.models.bundle.registry import Registry
from longtail.models.errors import BundleError, ConfigError
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.service.feedback.store import FeedbackStore
from longtail.service.telemetry.metrics import BANDS, band_of
from longtail.service.telemetry.sequential import rate_bounds

UNKNOWN_BAND = "unknown"
"""Band of labels of versions that the registry no longer has."""
_VERDICTS = ("accepted", "rejected", "added")
_MAX_LISTED = 10
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
_LENGTH = re.compile(r"([1-9][0-9]{0,3})([hdw])")


@dataclass(slots=True)
class FeedbackReport:
    """Feedback of a period.

    Attributes:
        start: The first moment.
        end: The moment after the last.
        entries: Number of entries of feedback.
        without_right: Of them, those in which no label that the model found is right, though some
            were judged.
        verdicts: Labels, by band of training documents and verdict.
        rejected: How often each label was rejected, by id.
        proposed: How often each name was proposed.
        promised: Labels that a promise had accepted, by its precision and what people said:
            accepted or rejected.
        undated: Entries of any period whose time can't be read.
    """

    start: datetime
    end: datetime
    entries: int = 0
    without_right: int = 0
    verdicts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    rejected: Counter[str] = field(default_factory=Counter)
    proposed: Counter[str] = field(default_factory=Counter)
    promised: dict[float, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    undated: int = 0

    def count(self, content: Mapping[str, Any], bands: LabelBands) -> None:
        """Count an entry."""
        self.entries += 1
        for verdict in _VERDICTS:
            for label_id in content[verdict]:
                band = bands.band_of(content["version"], content["model_digest"], label_id)
                self.verdicts[band][verdict] += 1
        if promised := set(content.get("promised", ())):
            judged = self.promised[content["promised_precision"]]
            for verdict in ("accepted", "rejected"):
                judged[verdict] += len(promised.intersection(content[verdict]))
        self.rejected.update(content["rejected"])
        self.proposed.update(each["name"] for each in content.get("proposed", ()))
        self.without_right += bool(content["rejected"]) and not content["accepted"]

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return {
            "start": self.start.isoformat(),
            "end": self.end.isoformat(),
            "entries": self.entries,
            "entries_without_right_label": self.without_right,
            "labels": {band: {x: c[x] for x in _VERDICTS} for band, c in self.verdicts.items()},
            "rejected": dict(self.rejected.most_common(_MAX_LISTED)),
            "proposed": dict(self.proposed.most_common(_MAX_LISTED)),
            "promised_labels": {f"{level:g}": dict(x) for level, x in self.promised.items()},
            "undated_entries": self.undated,
        }

    def to_markdown(self) -> str:
        """Return it as sentences and a table."""
        period = f"Feedback from {_time(self.start)} to {_time(self.end)}"
        wrong = f"in {self.without_right:,} all labels that were found are wrong"
        parts = [f"{period}: {self.entries:,} entries; {wrong}."]
        if self.verdicts:
            rows = [
                (band, *(f"{counts[x]:,}" for x in _VERDICTS), _share(counts))
                for band in (*BANDS, UNKNOWN_BAND)
                if (counts := self.verdicts.get(band))
            ]
            head = ("training documents", *_VERDICTS, "right")
            lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
            parts.append("\n".join(f"| {' | '.join(cells)} |" for cells in lines))
        for heading, counts in (("Rejected", self.rejected), ("Proposed", self.proposed)):
            named = [f"{x[:100]} ({n:,})" for x, n in counts.most_common(_MAX_LISTED)]
            if named:
                parts.append(f"{heading} most: {', '.join(named)}.")
        if self.undated:
            parts.append(f"{self.undated:,} entries have no time that can be read.")
        return "\n\n".join(parts)

    def kept_in_words(self) -> Iterator[str]:
        """Yield whether each promise is kept, in a sentence."""
        yield from (_promised(*each) for each in sorted(self.promised.items()))


class LabelBands:
    """How often labels were seen in training, by the versions of a registry."""

    def __init__(self, registry: Path) -> None:
        """Open nothing yet."""
        self._registry = Registry(registry)
        self._catalogues: dict[tuple[int, str], LabelCatalogue | None] = {}

    def band_of(self, version: int, digest: str, label_id: str) -> str:
        """Return the band of a label of a version, `UNKNOWN_BAND` where that is not there."""
        key = (version, digest)
        if key not in self._catalogues:
            self._catalogues[key] = self._catalogue(version, digest)
        catalogue = self._catalogues[key]
        row = None if catalogue is None else catalogue.row_of_id(label_id)
        if catalogue is None or row is None:
            return UNKNOWN_BAND
        return band_of(catalogue[row].training_count)

    def _catalogue(self, version: int, digest: str) -> LabelCatalogue | None:
        try:
            bundle = self._registry.open(version)
        except BundleError:
            return None
        return bundle.catalogue if bundle.manifest.digest == digest else None


def report_feedback(
    store: FeedbackStore, bands: LabelBands, start: datetime, end: datetime
) -> FeedbackReport:
    """Return the feedback from one moment to another.

    Args:
        store: The store of feedback.
        bands: Bands of its labels.
        start: The first moment.
        end: The moment after the last.
    """
    report = FeedbackReport(start, end)
    for record in store.records():
        if "deleted_at" in record.content:
            continue
        given_at = _moment(record.content["given_at"])
        report.undated += given_at is None
        if given_at is not None and start <= given_at < end:
            report.count(record.content, bands)
    return report


def period_of(since: str, until: str | None) -> tuple[datetime, datetime]:
    """Return the first moment of a period, and that after its last (see `moment_of`).

    Args:
        since: As for the option --since.
        until: As for the option --until; None: now.
    """
    now = datetime.now(UTC)
    end = now if until is None else moment_of(until, "--until", now)
    start = moment_of(since, "--since", end)
    if start >= end:
        raise ConfigError(f"--since {since!r}: is not before the end, {_time(end)}")
    return start, end


def moment_of(text: str, option: str, now: datetime) -> datetime:
    """Return the moment that an option names.

    Args:
        text: A length before now, such as "7d"; or a date or time, in UTC if it has no zone.
        option: Its name.
        now: The moment from which lengths count.
    """
    if found := _LENGTH.fullmatch(text):
        return now - timedelta(**{_UNITS[found[2]]: int(found[1])})
    moment = _moment(text)
    if moment is None:
        raise ConfigError(
            f"{option}: got {text[:40]!r}; expected a length of time such as 24h, 7d or 4w, or a "
            "date such as 2026-03-02"
        )
    return moment


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _share(counts: Counter[str]) -> str:
    judged = counts["accepted"] + counts["rejected"]
    return f"{100 * counts['accepted'] / judged:.1f} %" if judged else ""


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _promised(precision: float, judged: Counter[str]) -> str:
    """Return whether a promise of a precision is kept, in a sentence.

    The bounds may be looked at every week: they hold at all times at once.
    """
    right, total = np.array([float(judged["accepted"])]), np.array([float(judged.total())])
    (lower,), (upper,) = rate_bounds(right, total, 0.05)
    kept = "kept" if lower >= precision else "broken" if upper < precision else "not decided yet"
    return (
        f"Promise of {100 * precision:g} %: {judged.total():,} of its labels were judged, and "
        f"people accepted {100 * right[0] / total[0]:.1f} % of them (95 % confidence sequence: "
        f"{100 * lower:.1f} to {100 * upper:.1f} %): {kept}."
    )
