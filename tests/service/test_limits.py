"""No body over the limit is read to its end."""

from __future__ import annotations

import pytest

JSON = {"content-type": "application/json"}


@pytest.fixture
def small(open_client):
    with open_client(max_body_bytes=2000) as client:
        yield client


def test_a_declared_length_over_the_limit_is_a_413(small):
    answer = small.post("/v1/predict", json={"text": "a" * 2000})
    assert answer.status_code == 413
    assert answer.json()["type"] == "urn:longtail:problem:body-too-large"
    assert "more than 2000 bytes" in answer.json()["detail"]


def test_a_chunked_body_is_a_413_and_read_only_up_to_the_limit(small):
    answer = small.post("/v1/predict", content=(b"a" * 500 for _ in range(100)), headers=JSON)
    assert "content-length" not in answer.request.headers
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_body_of_just_the_limit_is_read(small):
    body = b'{"text": "' + b"a" * 1988 + b'"}'
    assert len(body) == 2000
    assert small.post("/v1/predict", content=body, headers=JSON).status_code == 200
    assert small.post("/v1/predict", content=iter([body]), headers=JSON).status_code == 200


def test_the_limit_holds_for_every_route(small):
    answer = small.request("GET", "/livez", content=b"a" * 2001)
    assert answer.status_code == 413
