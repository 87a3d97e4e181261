"""The work that a body makes is bounded by what it is for, and not done on the event loop."""

import json
import threading
import tracemalloc

import pytest
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from longtail.ext.annif.schemas import DocumentBatch, LearningBatch
from longtail.ext.open_inference.tensors import InferRequest
from longtail.service.app import create_app
from longtail.service.http import json_body
from longtail.service.http.json_body import parse_json_body
from longtail.service.schemas.feedback import FeedbackRequest
from longtail.service.schemas.requests import PredictRequest
from longtail.service.settings import Settings
from longtail.service.wire.lines import MAX_ELEMENTS, LineError, check_elements, parse_line
from longtail.service.wire.problems import KindError

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
