"""Entries of feedback, and a service that keeps them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from service.feedback.entries import Entry, sha256_of
from service.feedback.store import now


@pytest.fixture
def make_entry() -> Callable[..., Entry]:
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
def open_feedback(open_admin, tmp_path):
    """Starts the service with a folder for feedback."""
    return lambda loader=None, **settings: open_admin(
        loader, **{"feedback": tmp_path / "feedback", "feedback_texts": True} | settings
    )
