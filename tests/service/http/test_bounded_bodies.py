"""The work that a body makes is bounded by what it is for, and not done on the event loop."""

import gzip
import json
import threading
import tracemalloc
import zlib

import pytest
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from longtail.ext.annif.schemas import DocumentBatch, LearningBatch
from longtail.ext.open_inference.tensors import InferRequest
from longtail.service.app import create_app
from longtail.service.http import json_body
from longtail.service.http.json_body import parse_json_body
from longtail.service.schemas.feedback import FeedbackRequest
from longtail.service.schemas.requests import PredictRequest
from longtail.service.settings import Settings
from longtail.service.wire.lines import MAX_ELEMENTS, LineError, check_elements, parse_line
from longtail.service.wire.problems import PIECE_BYTES, BadGzipError, Inflater, KindError

MANY = b",".join([b"1"] * 700_000)
WRONG_LISTS = {
    PredictRequest: b'{"texts": [%s]}',
    FeedbackRequest: b'{"entries": [{"text": "a", "accepted": [%s]}]}',
    LearningBatch: b"[%s]",
    DocumentBatch: b'{"documents": [%s]}',
    InferRequest: b'{"inputs": [%s]}',
}


def peak_of(work):
    """Return the most bytes that some refused work had allocated at a time."""
    tracemalloc.start()
    try:
        with pytest.raises((KindError, RequestValidationError, LineError)) as caught:
            work()
        return caught.value, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("model", "body"), WRONG_LISTS.items(), ids=lambda x: getattr(x, "__name__", "")
)
def test_very_many_wrong_items_are_counted_and_not_validated(model, body):
    error, peak = peak_of(lambda: parse_json_body(body % MANY, model))
    assert "list items" in str(error)
    assert peak < 10 * len(MANY)


@pytest.mark.parametrize(
    ("model", "body"), WRONG_LISTS.items(), ids=lambda x: getattr(x, "__name__", "")
)
def test_a_list_is_refused_at_its_first_wrong_item(model, body):
    items = b",".join([b'"\\u0000"' if model is PredictRequest else b"null"] * 5000)
    with pytest.raises(RequestValidationError) as caught:
        parse_json_body(body % items, model)
    assert len(caught.value.errors()) <= 5


def test_very_many_wrong_fields_are_one_error_with_their_number():
    fields = {f"f{number}": 1 for number in range(20_000)}
    error, peak = peak_of(lambda: parse_json_body(json.dumps(fields).encode(), PredictRequest))
    assert "20000 things are wrong" in error.errors()[0]["msg"]
    assert peak < 2**24


def test_a_line_of_a_batch_has_the_same_bounds():
    line = b'{"text": "a", "include": [%s]}' % MANY
    error, peak = peak_of(lambda: parse_line(line, {}))
    assert "list items" in str(error)
    assert peak < 10 * len(MANY)
    fields = {f"f{number}": 1 for number in range(500)}
    error, _ = peak_of(lambda: parse_line(json.dumps(fields).encode(), {}))
    assert len(error.errors) == 5


@pytest.mark.parametrize("text", ["," * 2**21, '\\"[' * 2**20, ":{" * 2**20], ids=lambda x: x[:3])
def test_signs_inside_of_texts_are_no_elements(text):
    body = b'{"text": "%s"}' % text.encode()
    check_elements(body)
    assert len(parse_json_body(body, PredictRequest).text) >= 2**21


@pytest.mark.parametrize(
    "content", [b"," * 400_000, b'{"a":' * 40_000, b'"",' * 400_000, b'["\\"",' * 200_000]
)
def test_more_elements_than_the_limit_are_refused(content):
    with pytest.raises(KindError, match=str(MAX_ELEMENTS)):
        check_elements(content)


def test_large_bodies_are_parsed_by_another_thread(client, monkeypatch):
    threads = []

    def noting(content, model):
        threads.append(threading.current_thread().name)
        return parse_json_body(content, model)

    monkeypatch.setattr(json_body, "parse_json_body", noting)
    for length in (10, 90_000):
        body = {"documents": [{"text": "a" * length}]}
        assert client.post("/v1/projects/longtail/suggest-batch", json=body).status_code == 200
        assert client.post("/v1/predict", json={"text": "a" * length}).status_code == 200
    small, large = {*threads[:2]}, {*threads[2:]}
    assert len(threads) == 4
    assert not small & large


def test_no_route_has_a_body_that_the_framework_parses():
    routes = create_app(Settings.model_construct()).state.routes
    assert all(isinstance(route, APIRoute) and route.body_field is None for route in routes)
    assert len(routes) > 30


def unpacked(packed, step=None):
    inflater, step = Inflater(), step or max(1, len(packed))
    pieces = [
        piece
        for start in range(0, len(packed), step)
        for piece in inflater.feed(packed[start : start + step])
    ]
    inflater.finish()
    return pieces


@given(st.lists(st.binary(max_size=300), max_size=4), st.integers(1, 50))
def test_any_members_come_out_however_they_are_cut(members, step):
    packed = b"".join(gzip.compress(member) for member in members)
    assert b"".join(unpacked(packed, step)) == b"".join(members)


def test_much_comes_out_in_pieces_of_bounded_size():
    body = bytes(range(256)) * 4000
    pieces = unpacked(gzip.compress(body))
    assert b"".join(pieces) == body
    assert max(map(len, pieces)) == PIECE_BYTES


def test_a_bomb_is_refused_long_before_it_is_unpacked():
    pieces = []
    bomb = gzip.compress(bytes(10**8))
    with pytest.raises(BadGzipError, match="more than 200 times its size"):
        pieces.extend(map(len, Inflater().feed(bomb)))
    assert len(pieces) * PIECE_BYTES < 3e7


@pytest.mark.parametrize(
    ("packed", "words"),
    [
        (b"plain", "is not gzip"),
        (zlib.compress(b"x")[:-1] + b"0", "is not gzip"),
        (gzip.compress(b"text")[:-9], "ends too early"),
        (gzip.compress(b"text")[:-4] + b"0000", "is not gzip"),
        (gzip.compress(b"text") + b"rest", "is not gzip"),
    ],
    ids=["plain", "wrong sum", "cut off", "wrong length", "something after it"],
)
def test_what_is_no_gzip_is_refused(packed, words):
    with pytest.raises(BadGzipError, match=words):
        unpacked(packed)


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
    (b"", 422, "the body: missing; add it"), (b"{", 400, "the first error is at character 1"),
    (b'{"text": "a"} x', 400, "the first error is at character 14"),
    (b'{"text": 1}', 422, "/text: "), (b'{"text": "a", "k": "5"}', 422, "/k: "),
    (b'{"text": "a", "k": 3.5}', 422, "/k: "), (b'{"text": "a", "k": 1e400}', 422, "/k: "),
    (b'{"text": "a", "tail_dial": NaN}', 422, "/tail_dial: "),
    (b'{"text": "a", "threshold": "0.5"}', 422, "/threshold: "),
    (b'{"text": "a", "version": "latest"}', 422, "/version: Give a version as a whole number"),
    (b'{"text": "a", "misspelt": 1}', 422, "/misspelt: "),
    (b'{"text": "\\ud800"}', 422, "half of a surrogate pair"),
    (b'{"text": "\xff"}', 400, "can't be read as JSON in UTF-8"),
    ('{"text": "a"}'.encode("utf-16"), 400, "The body is in UTF-16; send it in UTF-8"),
    (b'{"text": " "}', 422, "empty or only white space"),
    (b"[" * 100_000, 400, "can't be read as JSON"),
    (b'{"text": "a", "k": ' + b"9" * 5000 + b"}", 400, "can't be read as JSON"),
]  # fmt: skip


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


def test_the_limit_holds_for_every_route(small):
    answer = small.request("GET", "/livez", content=b"a" * 2001)
    assert answer.status_code == 413


def packed(body: bytes) -> dict[str, object]:
    return {"content": gzip.compress(body), "headers": JSON | {"content-encoding": "gzip"}}


def test_a_gzip_body_is_read_and_its_limit_holds_for_what_it_unpacks_to(small):
    good = small.post("/v1/predict", **packed(b'{"text": "' + b"a" * 1988 + b'"}'))
    large = small.post("/v1/predict", **packed(b'{"text": "' + b"a" * 1989 + b'"}'))
    assert good.json()["results"][0]["labels"][0]["score"] == 1988.0
    assert (large.status_code, large.json()["type"]) == (413, "urn:longtail:problem:body-too-large")


def test_a_zip_bomb_is_refused(small):
    answer = small.post("/v1/predict", **packed(bytes(10**7)))
    assert answer.status_code == 413
