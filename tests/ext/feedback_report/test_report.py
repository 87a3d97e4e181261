"""`longtail feedback report`: what was said in a period."""

from datetime import UTC, datetime, timedelta

import pytest

from longtail.ext.feedback_report.report import (
    UNKNOWN_BAND,
    LabelBands,
    report_feedback,
)
from longtail.models.feedback import ProposedLabel
from longtail.service.feedback.store import FeedbackStore

END = datetime(2026, 3, 9, tzinfo=UTC)
START = datetime(2026, 3, 2, tzinfo=UTC)


@pytest.fixture
def digest(registry):
    return registry.open(2).manifest.digest


PROMISED = {"promised": ("L1", "L3"), "promised_precision": 0.9}


@pytest.fixture
def store(tmp_path, make_entry, digest):
    said = [
        ("now-1", START, {"accepted": ("L1", "L2"), "rejected": ("L3",), **PROMISED}),
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
    assert found.to_json()["promised_labels"] == {"0.9": {"accepted": 1, "rejected": 1}}
    assert found.rejected == {"L3": 2} and found.proposed == {"mill": 1}
    text = found.to_markdown()
    assert "| 0 | 2 | 1 | 1 | 66.7 % |" in text
    assert "Rejected most: L3 (2)." in text and "Proposed most: mill (1)." in text
