"""What people said in a while, beside the while before: what `longtail feedback report` prints.

The store of feedback is its only source: it has times, versions and verdicts, and outlives the
service, whose metrics begin anew at each start.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from longtail.models.bundle.registry import Registry
from longtail.models.errors import BundleError, ConfigError
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.service.feedback.store import FeedbackStore
from longtail.service.telemetry.feedback_metrics import BANDS, band_of

UNKNOWN_BAND = "unknown"
"""Of labels of versions that the registry has no more."""
_VERDICTS = ("accepted", "rejected", "added")
_PAGE = 1000
_MAX_LISTED = 10
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
_LENGTH = re.compile(r"([1-9][0-9]{0,3})([hdw])")


@dataclass(slots=True)
class Period:
    """What was said in a while.

    Attributes:
        entries: Of feedback.
        without_right: Of them, those in which no label that the model found is right, though some
            were judged.
        verdicts: Labels, by band of training documents and verdict.
        shares: Sum and number of the entries' shares of accepted labels among accepted and
            rejected ones, by version.
        rejected: How often each label was rejected, by id.
        proposed: How often each name was proposed.
    """

    entries: int = 0
    without_right: int = 0
    verdicts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    shares: dict[int, tuple[float, int]] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)
    proposed: Counter[str] = field(default_factory=Counter)

    def count(self, content: Mapping[str, Any], bands: LabelBands) -> None:
        """Count an entry."""
        self.entries += 1
        version = content["version"]
        for verdict in _VERDICTS:
            for label_id in content[verdict]:
                band = bands.band_of(version, content["model_digest"], label_id)
                self.verdicts[band][verdict] += 1
        self.rejected.update(content["rejected"])
        self.proposed.update(each["name"] for each in content.get("proposed", ()))
        accepted, rejected = len(content["accepted"]), len(content["rejected"])
        if accepted + rejected:
            self.without_right += not accepted
            total, number = self.shares.get(version, (0.0, 0))
            self.shares[version] = (total + accepted / (accepted + rejected), number + 1)

    def number_of(self, verdict: str) -> int:
        """Return how many labels were judged so."""
        return sum(counts[verdict] for counts in self.verdicts.values())

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return {
            "entries": self.entries,
            "entries_without_right_label": self.without_right,
            "labels": {band: {x: c[x] for x in _VERDICTS} for band, c in self.verdicts.items()},
            "accepted_share_by_version": {
                str(version): {"mean": total / number, "entries": number}
                for version, (total, number) in sorted(self.shares.items())
            },
            "rejected": dict(self.rejected.most_common(_MAX_LISTED)),
            "proposed": dict(self.proposed.most_common(_MAX_LISTED)),
        }


@dataclass(frozen=True, slots=True)
class FeedbackReport:
    """Two periods of the same length, one after the other.

    Attributes:
        start: Of the later one.
        end: Of the later one.
        now: The later one.
        before: The earlier one.
        num_undated: Entries whose time can't be read.
    """

    start: datetime
    end: datetime
    now: Period
    before: Period
    num_undated: int

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return {
            "start": self.start.isoformat(),
            "end": self.end.isoformat(),
            "now": self.now.to_json(),
            "before": self.before.to_json(),
            "undated_entries": self.num_undated,
        }

    def to_markdown(self) -> str:
        """Return it as tables."""
        now, before = self.now, self.before
        rows = [
            ("entries", now.entries, before.entries),
            ("entries whose found labels are all wrong", now.without_right, before.without_right),
            *(
                (f"labels {verdict}", now.number_of(verdict), before.number_of(verdict))
                for verdict in _VERDICTS
            ),
            ("labels proposed", now.proposed.total(), before.proposed.total()),
        ]
        found = [
            each for each in (*BANDS, UNKNOWN_BAND) if each in {*now.verdicts, *before.verdicts}
        ]
        bands = [
            (each, *(now.verdicts[each][x] for x in _VERDICTS), *map(_share, _of(self, each)))
            for each in found
        ]
        versions = [
            (version, *(_mean(period.shares.get(version)) for period in (now, before)))
            for version in sorted({*now.shares, *before.shares})
        ]
        parts = [
            f"Feedback from {_time(self.start)} to {_time(self.end)}, and the same time before.",
            _table(("", "now", "before"), rows),
            _table(("training documents", *_VERDICTS, "right now", "right before"), bands),
            _table(("version", "accepted share now", "before"), versions),
            _listed("Rejected most", now.rejected),
            _listed("Proposed most", now.proposed),
        ]
        if self.num_undated:
            parts.append(f"{self.num_undated:,} entries have no time that can be read.")
        return "\n\n".join(filter(None, parts))


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
    """Return what was said from one moment to another, and in the same time before.

    Args:
        store: What was said.
        bands: Of its labels.
        start: The first moment.
        end: The moment after the last.

    Raises:
        FeedbackStoreError: The store can't be read.
    """
    report = FeedbackReport(start, end, Period(), Period(), 0)
    num_undated = 0
    for content in _entries(store):
        given_at = _moment(content["given_at"])
        if given_at is None:
            num_undated += 1
        elif start <= given_at < end:
            report.now.count(content, bands)
        elif start - (end - start) <= given_at < start:
            report.before.count(content, bands)
    return FeedbackReport(start, end, report.now, report.before, num_undated)


def period_of(since: str, until: str | None) -> tuple[datetime, datetime]:
    """Return the first moment of a period, and that after its last (see `moment_of`).

    Args:
        since: As for the option --since.
        until: As for the option --until; None: now.

    Raises:
        ConfigError: They are no moments, or the first is not before the last.
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
        text: Such as "7d", so long before now; or a date or time, in UTC where it has no zone.
        option: Its name.
        now: The moment from which lengths count.

    Raises:
        ConfigError: It names none.
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


def _entries(store: FeedbackStore) -> Iterable[Mapping[str, Any]]:
    after = 0
    while records := store.page(after, _PAGE):
        yield from (each.content for each in records if "deleted_at" not in each.content)
        after = records[-1].sequence


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _of(report: FeedbackReport, band: str) -> tuple[Counter[str], Counter[str]]:
    return report.now.verdicts[band], report.before.verdicts[band]


def _share(counts: Counter[str]) -> str:
    judged = counts["accepted"] + counts["rejected"]
    return f"{100 * counts['accepted'] / judged:.1f} %" if judged else ""


def _mean(share: tuple[float, int] | None) -> str:
    return "" if share is None else f"{100 * share[0] / share[1]:.1f} % of {share[1]:,} entries"


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _table(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table in Markdown; nothing without rows."""
    names = list(headings)
    shown = [[f"{x:,}" if isinstance(x, int) else f"{x}" for x in row] for row in rows]
    lines = [names, ["---"] * len(names), *shown]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) if shown else ""


def _listed(heading: str, counts: Counter[str]) -> str:
    """Return a line; nothing without counts."""
    found = (f"{name[:100]} ({number:,})" for name, number in counts.most_common(_MAX_LISTED))
    return f"{heading}: {', '.join(found)}." if counts else ""
