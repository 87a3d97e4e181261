"""The short way answers as FastAPI's own way does, and only where that has nothing to refuse."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

PLAIN = {"Content-Type": "application/json"}
LONG_WAY = {"Content-Type": "application/json; charset=utf-8"}

BODIES = [
    b'{"text": "a"}',
    b'{"texts": ["a", "b"], "k": 2, "scorer": "classifier"}',
    b'{"text": "a", "k": 3.0, "version": 2.0}',
    b'{"text": "a", "threshold": 0.5, "tail_dial": 0, "exclude": []}',
    b'{"text": "a", "include": ["10", "11"], "explain": true}',
    b'{"text": "a", "text": "b"}',
    b'{"text": "\\u00e9\\ud83d\\ude00"}',
    '{"text": "\N{SNOWMAN}"}'.encode(),
    '{"text": "a"}'.encode("utf-16"),
    b'\xef\xbb\xbf{"text": "a"}',
    b"",
    b"null",
    b"{",
    b'{"text": "a"} x',
    b'{"text": 1}',
    b'{"text": "a", "texts": ["b"]}',
    b'{"text": "a", "k": "5"}',
    b'{"text": "a", "k": true}',
    b'{"text": "a", "k": 3.5}',
    b'{"text": "a", "k": 1e400}',
    b'{"text": "a", "k": 123456789012345678901234567890}',
    b'{"text": "a", "tail_dial": NaN}',
    b'{"text": "a", "tail_dial": Infinity}',
    b'{"text": "a", "threshold": "0.5"}',
    b'{"text": "a", "include": "10"}',
    b'{"text": "a", "version": "latest"}',
    b'{"text": "a", "misspelt": 1}',
    b'{"text": "\\ud800"}',
    b'{"text": "\xff"}',
    b'{"text": " "}',
    b'{"text": "a", "scorer": "none of these"}',
    b"[" * 500 + b"]" * 500,
]


def content_of(answer):
    """What two answers to one request must have in common."""
    content = answer.json()
    content.pop("request_id", None)
    headers = {name: answer.headers[name] for name in ("content-type", "content-length")}
    return answer.status_code, content, headers


def assert_same_answers(client, body):
    short, long = (
        client.post("/v1/predict", content=body, headers=headers) for headers in (PLAIN, LONG_WAY)
    )
    assert content_of(short) == content_of(long)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body[:40]))
def test_both_ways_give_the_same_answer(client, body):
    assert_same_answers(client, body)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 2000), st.floats(), st.text(max_size=5),
    st.lists(st.text(max_size=3), max_size=3),
)  # fmt: skip
NAMES = ["text", "texts", "k", "scorer", "threshold", "correction", "tail_dial", "include",
         "exclude", "include_set", "explain", "version", "timeout_s"]  # fmt: skip


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(extra=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3))
def test_both_ways_give_the_same_answer_to_whatever_comes(client, extra):
    body = json.dumps({"text": "a"} | extra).encode()
    assert_same_answers(client, body)


def test_a_well_formed_request_takes_the_short_way(client, monkeypatch):
    def refuse(*_args, **_options):
        raise AssertionError("FastAPI resolves dependencies")

    monkeypatch.setattr("fastapi.routing.solve_dependencies", refuse)
    answer = client.post("/v1/predict", json={"text": "a"})
    assert answer.status_code == 200
    assert list(answer.json()) == ["model", "scorer", "correction", "tail_dial", "results"]


@pytest.mark.parametrize("path", ["/v1/predict?k=3", "/v1/predict"])
def test_a_query_and_another_media_type_are_refused_as_ever(client, path):
    headers = PLAIN if "?" in path else {"Content-Type": "text/plain"}
    answer = client.post(path, content=b'{"text": "a"}', headers=headers)
    assert answer.status_code == (422 if "?" in path else 415)


def test_the_route_is_described_as_any_other(client):
    document = client.get("/openapi.json").json()
    operation = document["paths"]["/v1/predict"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/PredictRequest"}
