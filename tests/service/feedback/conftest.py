"""Entries of feedback, places to keep them, and a service that does."""

import pytest

from longtail.models.feedback import Entry, sha256_of
from longtail.service.feedback.store import FeedbackStore, now


@pytest.fixture
def make_entry():
    def make(entry_id: str, text: str | None = "a text", **changes: object) -> Entry:
        fields = {
            "given_at": now(),
            "who": None,
            "version": 1,
            "model_digest": "d",
            "document_id": None,
            "text": text,
            "text_sha256": None if text is None else sha256_of(text),
            "accepted": ("L1",),
            "rejected": (),
            "added": (),
        }
        return Entry(id=entry_id, **(fields | changes))

    return make


@pytest.fixture
def place(tmp_path):
    """Where a store may be made."""
    return tmp_path / "store"


@pytest.fixture
def store(place):
    with FeedbackStore(place, wait_s=0.1) as store:
        yield store


@pytest.fixture
def open_feedback(open_admin, tmp_path):
    """Starts the service with a folder for feedback."""
    return lambda loader=None, **settings: open_admin(
        loader, **{"feedback": tmp_path / "feedback", "feedback_texts": True} | settings
    )
