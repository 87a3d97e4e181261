"""Bodies are read straight from their bytes, and refused as a model refuses what they say."""

import json

import pytest
from fastapi.exceptions import RequestValidationError
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from longtail.service.http.json_body import parse_json_body
from longtail.service.schemas.requests import PredictRequest

JSON = {"Content-Type": "application/json"}

READABLE = [
    b'{"text": "a"}',
    b'{"texts": ["a", "b"], "k": 2, "scorer": "classifier"}',
    b'{"text": "a", "k": 3.0, "version": 2.0}',
    b'{"text": "a", "threshold": 0.5, "tail_dial": 0, "exclude": []}',
    b'{"text": "a", "include": ["10", "11"], "explain": true}',
    b'{"text": "\\u00e9\\ud83d\\ude00"}',
    '{"text": "\N{SNOWMAN}"}'.encode(),
    b'\xef\xbb\xbf{"text": "a"}',
]

REFUSED = [
    (b'{"text": "a", "texts": ["b"]}', 422, "Give exactly one of"),
    (b"", 422, "the body: missing; add it"),
    (b"{", 400, "the first error is at character 1"),
    (b'{"text": "a"} x', 400, "the first error is at character 14"),
    (b'{"text": 1}', 422, "/text: "),
    (b'{"text": "a", "k": "5"}', 422, "/k: "),
    (b'{"text": "a", "k": 3.5}', 422, "/k: "),
    (b'{"text": "a", "k": 1e400}', 422, "/k: "),
    (b'{"text": "a", "tail_dial": NaN}', 422, "/tail_dial: "),
    (b'{"text": "a", "threshold": "0.5"}', 422, "/threshold: "),
    (b'{"text": "a", "version": "latest"}', 422, "/version: Give a version as a whole number"),
    (b'{"text": "a", "misspelt": 1}', 422, "/misspelt: "),
    (b'{"text": "\\ud800"}', 422, "half of a surrogate pair"),
    (b'{"text": "\xff"}', 400, "can't be read as JSON in UTF-8"),
    ('{"text": "a"}'.encode("utf-16"), 400, "The body is in UTF-16; send it in UTF-8"),
    (b'{"text": " "}', 422, "empty or only white space"),
    (b"[" * 100_000, 400, "can't be read as JSON"),
]


@pytest.mark.parametrize("body", READABLE, ids=lambda body: repr(body[:40]))
def test_what_is_json_is_read_as_python_reads_it(body):
    expected = PredictRequest.model_validate(json.loads(body))
    assert parse_json_body(body, PredictRequest) == expected


@pytest.mark.parametrize(("body", "status", "words"), REFUSED, ids=lambda x: repr(x)[:40])
def test_what_is_not_as_it_should_be_is_refused_with_its_place(client, body, status, words):
    answer = client.post("/v1/predict", content=body, headers=JSON)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert words in answer.json()["detail"]


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 2000), st.floats(), st.text(max_size=5),
    st.lists(st.text(max_size=3), max_size=3),
)  # fmt: skip
NAMES = ["text", "texts", "k", "scorer", "threshold", "correction", "tail_dial", "include",
         "exclude", "include_set", "explain", "version", "timeout_s"]  # fmt: skip


@settings(max_examples=60)
@given(extra=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3))
def test_bytes_mean_what_the_python_objects_mean(extra):
    content = {"text": "a"} | extra
    body = json.dumps(content).encode()
    try:
        expected = PredictRequest.model_validate(json.loads(body))
    except ValidationError as error:
        with pytest.raises(RequestValidationError) as caught:
            parse_json_body(body, PredictRequest)
        places = {("body", *each["loc"]) for each in error.errors()}
        assert {each["loc"] for each in caught.value.errors()} == places
    else:
        assert parse_json_body(body, PredictRequest) == expected


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/v1/predict/", "/v1/models/", "/v1/batch/"])
def test_a_slash_at_the_end_is_no_empty_redirect(client, method, path):
    answer = client.request(method, path, json={"text": "a"})
    assert answer.status_code == 404
    assert answer.json()["detail"].startswith("Ask without the slash at the end of the path. ")
