"""Entries of feedback, places to keep them, and a service that does."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from urllib.parse import quote

import pytest

from longtail.service.feedback.entries import Entry, sha256_of
from longtail.service.feedback.store import FeedbackStore, now

POSTGRESQL = os.environ.get("LONGTAIL_TEST_POSTGRESQL")
"""The URL of a database in which tests may make schemas, and remove them."""


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


@pytest.fixture(params=["folder", "sqlalchemy", "postgresql"])
def place(request, tmp_path):
    """Where a store may be made: a folder, a URL that is SQLAlchemy's, a server of PostgreSQL."""
    if request.param == "folder":
        return tmp_path / "store"
    if request.param == "sqlalchemy":
        pytest.importorskip("sqlalchemy")
        return f"sqlite+pysqlite:///{tmp_path}/store.db"
    return request.getfixturevalue("postgresql")


@pytest.fixture
def postgresql():
    """Gives the URL of a schema of its own, which goes with the test.

    Yields:
        The URL.
    """
    if POSTGRESQL is None:
        pytest.skip("LONGTAIL_TEST_POSTGRESQL names no database")
    sqlalchemy = pytest.importorskip("sqlalchemy")
    schema = f"test_{secrets.token_hex(8)}"
    engine = sqlalchemy.create_engine(POSTGRESQL, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text(f"CREATE SCHEMA {schema}"))
        yield f"{POSTGRESQL}?options={quote(f'-csearch_path={schema}')}"
        connection.execute(sqlalchemy.text(f"DROP SCHEMA {schema} CASCADE"))
    engine.dispose()


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
