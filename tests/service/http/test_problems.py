"""Every error is a problem document, and none tells more than it should."""

import json

import pytest

from longtail.models.errors import LongtailError, OverloadedError

PRIVATE = "a secret text"
HUGE = "9" * 5000


def assert_problem(answer, status, slug):
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.status_code == problem["status"] == status, problem
    assert problem["type"] == f"urn:longtail:problem:{slug}"
    assert problem["title"]
    assert problem["detail"]
    return problem


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"text": " \t\u2003"}, "/text"),
        ({"texts": ["a", ""]}, "/texts/1"),
        ({"text": "a", "k": True}, "/k"),
        ({"text": "a", "threshold": float("nan")}, "/threshold"),
        ({"text": "a", "version": 10**30}, "/version"),
        ({"text": "a", "a/b~": 5}, "/a~1b~0"),
        ({"text": "a", "\ud800": 5}, ""),
        (None, ""),
    ],
)
def test_a_body_that_is_not_as_wanted_is_a_422_that_points_at_the_place(client, body, pointer):
    headers = {"content-type": "application/json"}
    answer = client.post("/v1/predict", content=json.dumps(body), headers=headers)
    problem = assert_problem(answer, 422, "invalid-body")
    assert pointer in [error["pointer"] for error in problem["errors"]]


def test_problems_never_repeat_the_text(client):
    bodies = [
        {"texts": [PRIVATE, 5]},
        {"text": {"nested": PRIVATE}},
        {"text": PRIVATE + "\x00"},
        {"text": PRIVATE, "scorer": "none"},
        {"text": PRIVATE, "k": PRIVATE},
        {"text": PRIVATE, "version": PRIVATE},
    ]
    answers = [client.post("/v1/predict", json=body) for body in bodies]
    assert {answer.status_code for answer in answers} == {422}
    assert not [answer.text for answer in answers if PRIVATE in answer.text]


def test_problems_stay_short_however_much_is_wrong(client):
    body = {"text": "a", "x" * 10_000: 1} | {f"field{i}": 1 for i in range(100)}
    problem = client.post("/v1/predict", json=body).json()
    assert len(problem["errors"]) == 20
    assert len(json.dumps(problem)) < 10_000
    assert problem["detail"].startswith("101 things are wrong")


@pytest.mark.parametrize(
    "content",
    [
        b"{'text': 'a'}",
        b'{"text": "\xff\xfe"}',
        b"[" * 100_000,
        b'{"text": "a", "k": ' + HUGE.encode() + b"}",
    ],
)
def test_a_body_that_is_not_json_is_a_400(client, content):
    headers = {"content-type": "application/json"}
    answer = client.post("/v1/predict", content=content, headers=headers)
    assert_problem(answer, 400, "malformed-body")


def raising(fake_predictor, error):
    class Raising(fake_predictor):
        def predict(self, texts, **options):
            if list(texts) != ["a"]:
                return super().predict(texts, **options)
            raise error

    return Raising


@pytest.mark.parametrize(
    ("error", "status", "slug", "retry_after"),
    [
        (OverloadedError("too much waits"), 429, "overloaded", "1"),
        (LongtailError("odd"), 500, "model", None),
    ],
)
def test_each_error_has_its_status(
    open_client, make_loader, fake_predictor, error, status, slug, retry_after
):
    loader = make_loader(predictor_class=raising(fake_predictor, error))
    with open_client(loader) as client:
        answer = client.post("/v1/predict", json={"text": "a"})
    assert assert_problem(answer, status, slug)["detail"] == str(error)
    assert answer.headers.get("retry-after") == retry_after


def test_an_unexpected_error_is_a_500_that_tells_nothing_but_is_logged(
    open_client, make_loader, fake_predictor, caplog
):
    loader = make_loader(predictor_class=raising(fake_predictor, RuntimeError("inner path")))
    with open_client(loader) as client:
        answer = client.post("/v1/predict", json={"text": "a"})
        assert "inner path" not in str(assert_problem(answer, 500, "internal"))
        assert client.post("/v1/predict", json={"text": "b"}).status_code == 200
    assert "unexpected RuntimeError" in caplog.text
