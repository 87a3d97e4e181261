"""`longtail feedback report`: what was said in a period."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

import longtail
from longtail.models.errors import ConfigError
from longtail.service.feedback.entries import ProposedLabel
from longtail.service.feedback.store import FeedbackStore
from longtail.service.offline.feedback_report import (
    UNKNOWN_BAND,
    LabelBands,
    report_feedback,
)

END = datetime(2026, 3, 9, tzinfo=UTC)
START = datetime(2026, 3, 2, tzinfo=UTC)


@pytest.fixture
def digest(registry):
    return registry.open(2).manifest.digest


@pytest.fixture
def store(tmp_path, make_entry, digest):
    said = [
        ("now-1", START, {"accepted": ("L1", "L2"), "rejected": ("L3",)}),
        ("now-2", END - timedelta(seconds=1), {"accepted": (), "rejected": ("L3",), "version": 1}),
        ("now-3", START, {"accepted": (), "added": ("L5",), "proposed": (ProposedLabel("mill"),)}),
        ("deleted", START, {}),
        ("late", END, {}),
        ("before", START - timedelta(seconds=1), {"accepted": ("L1",), "rejected": ("L2",)}),
        ("old", START - timedelta(days=7, seconds=1), {}),
    ]
    with FeedbackStore(tmp_path / "feedback") as store:
        for name, at, fields in said:
            more = {"version": 2, "model_digest": digest} | fields
            store.append([[make_entry(name, given_at=at.isoformat(), **more)]])
        store.append([[make_entry("undated", given_at="lately")]])
        store.delete("deleted")
        yield store


def test_verdicts_are_counted_in_their_time_and_band(store, registry):
    found = report_feedback(store, LabelBands(registry.folder), START, END)
    assert (found.entries, found.without_right, found.undated) == (3, 1, 1)
    assert found.to_json()["labels"] == {
        "0": {"accepted": 2, "rejected": 1, "added": 1},
        UNKNOWN_BAND: {"accepted": 0, "rejected": 1, "added": 0},  # version 1 of another registry
    }
    assert found.rejected == {"L3": 2} and found.proposed == {"mill": 1}
    text = found.to_markdown()
    assert "| 0 | 2 | 1 | 1 | 66.7 % |" in text
    assert "Rejected most: L3 (2)." in text and "Proposed most: mill (1)." in text


def test_the_command_prints_tables_or_json(store, registry, tmp_path):
    words = [
        "feedback", "report", "--feedback", str(tmp_path / "feedback"), "--since", "7d",
        "--until", "2026-03-09", "--registry", str(registry.folder),
    ]  # fmt: skip
    done = CliRunner().invoke(longtail.app, words)
    assert done.exit_code == 0, done.output
    assert "Feedback from 2026-03-02 00:00 UTC to 2026-03-09 00:00 UTC" in done.output
    assert "3 entries; in 1 all labels" in done.output
    content = json.loads(CliRunner().invoke(longtail.app, [*words, "--json"]).output)
    assert content["entries_without_right_label"] == 1
    done = CliRunner().invoke(longtail.app, [*words, "--since", "2026-03-10"])
    assert isinstance(done.exception, ConfigError) and "not before the end" in str(done.exception)
