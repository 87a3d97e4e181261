"""What is a URL, and what of it may be seen: no password, wherever it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from longtail.models.files.urls import is_url, without_secrets


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("postgresql+psycopg://ada:secret@db:5432/said", "postgresql+psycopg://***@db:5432/said"),
        ("postgresql://db/said?password=secret", "postgresql://db/said"),
        ("postgresql:///said?host=/run&user=ada", "postgresql:///said"),
        ("mysql+pymysql://ada:sec%3Aret@[::1]/said", "mysql+pymysql://***@[::1]/said"),
        ("sqlite:////var/said.db", "sqlite:////var/said.db"),
        ("x://ada:se@secret@db/said", "x://***"),
        ("x://ada:/secret@db/said", "x://***"),
        ("x://ada:?secret@db/said", "x://***"),
        ("x://ada:#secret@db/said", "x://***"),
        ("x://db/said?password=x@secret", "x://***"),
        ("x://ada:secret/said", "x://***"),
        ("x://ada:secret", "x://***"),
        ("x://ada:secret\n@db/said", "x://***@db/said"),
    ],
)
def test_what_is_shown_of_a_url(place, shown):
    assert is_url(place)
    assert without_secrets(place) == shown and "secret" not in shown


@pytest.mark.parametrize("place", ["feedback", "/var/feedback", "C:\\said", "a/b://c", "://x", ""])
def test_a_path_is_no_url(place):
    assert not is_url(place) and not is_url(Path(place))
    assert without_secrets(place) == place
