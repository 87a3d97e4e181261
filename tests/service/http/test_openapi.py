"""The published OpenAPI document tells the truth about errors and bodies."""

import json

import pytest

from longtail.models.errors import LongtailError, OverloadedError
from longtail.service.schemas.labels import LabelDetail, LabelList


@pytest.fixture
def document(client):
    return client.get("/openapi.json").json()


def operations(document):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method} {path}", operation


def test_every_error_of_every_route_is_a_problem_document(document):
    for name, operation in operations(document):
        errors = {s: r for s, r in operation["responses"].items() if s[0] in "45"}
        assert "500" in errors, name
        for response in errors.values():
            assert response["content"] == {
                "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
            }


def test_the_documented_examples_are_answered(client, document):
    for example in document["components"]["schemas"]["PredictRequest"]["examples"]:
        assert client.post("/v1/predict", json=example).status_code == 200


def test_the_examples_of_answers_are_such_answers(document):
    for model in (LabelList, LabelDetail):
        (example,) = document["components"]["schemas"][model.__name__]["examples"]
        assert model.model_validate(example).model_dump(mode="json") == example


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (
            "/v1/labels?limt=5&query=x",
            "expected query, limit, offset, version, sort, narrower_of, language, id",
        ),
        ("/v1/labels/L1?limt=5", "expected version"),
        ("/v1/label-sets?limt=5", "this path takes none"),
        ("/v1/models?limt=5", "this path takes none"),
    ],
)
def test_a_get_route_refuses_what_it_does_not_know(client, path, wanted):
    answer = client.get(path)
    assert answer.status_code == 422
    assert answer.json()["type"] == "urn:longtail:problem:invalid-body"
    assert answer.json()["errors"] == [
        {"pointer": "/query/limt", "detail": f"Unknown parameter; {wanted}"}
    ]


@pytest.mark.parametrize("path", ["/livez?x=1", "/readyz?x=1", "/metrics?name=y"])
def test_probes_and_scrapers_may_send_what_they_like(client, path):
    assert client.get(path).status_code == 200


ROOT = "/our/labels"
STRIPPED, LEFT = "", ROOT


@pytest.fixture
def below(open_client):
    with open_client(root_path=ROOT) as below:
        yield below


@pytest.mark.parametrize("sent", [STRIPPED, LEFT], ids=["stripped", "left"])
def test_all_is_found_below_the_prefix(below, sent):
    for path in ("/livez", "/readyz", "/metrics", "/v1/models", "/v1/labels?id=L1", "/", "/docs"):
        assert below.get(sent + path).status_code == 200, path
    assert below.post(f"{sent}/v1/predict", json={"text": "a"}).status_code == 200
    lines = {"content-type": "application/x-ndjson"}
    for path in ("/v1/predict?k=1", "/v1/nothing"):
        problem = below.post(sent + path, json={"text": "a"}).json()
        assert problem["instance"] == ROOT + path.partition("?")[0]
    answer = below.post(f"{sent}/v1/batch", content=b'{"text": "a"}\n', headers=lines)
    assert b'"num_results": 1' in answer.content


@pytest.mark.parametrize("sent", [STRIPPED, LEFT], ids=["stripped", "left"])
def test_the_same_paths_want_a_key_below_a_prefix(open_client, keys, sent):
    (key, entry), _ = keys
    with open_client(root_path=ROOT, api_keys=entry) as below:
        for path in ("/livez", "/readyz", "/metrics", "/docs", "/openapi.json", "/"):
            assert below.get(sent + path).status_code == 200, path
        for path in ("/v1/models", "/v1/labels", "/livez/../v1/models", f"{ROOT}/v1/models"):
            assert below.get(sent + path).status_code in {401, 404}, path
        assert below.get(f"{sent}/v1/models").status_code == 401
        bearer = {"Authorization": f"Bearer {key}"}
        assert below.get(f"{sent}/v1/models", headers=bearer).status_code == 200
        assert below.post(f"{sent}/v1/admin/rollback", headers=bearer).status_code == 403


PRIVATE = "a secret text"


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
        ({}, ""), ({"text": " \t\u2003"}, "/text"), ({"texts": ["a", ""]}, "/texts/1"),
        ({"text": "a", "k": True}, "/k"), ({"text": "a", "threshold": float("nan")}, "/threshold"),
        ({"text": "a", "version": 10**30}, "/version"), ({"text": "a", "a/b~": 5}, "/a~1b~0"),
        ({"text": "a", "\ud800": 5}, ""), (None, ""),
    ],
)  # fmt: skip
def test_a_body_that_is_not_as_wanted_is_a_422_that_points_at_the_place(client, body, pointer):
    headers = {"content-type": "application/json"}
    answer = client.post("/v1/predict", content=json.dumps(body), headers=headers)
    problem = assert_problem(answer, 422, "invalid-body")
    assert pointer in [error["pointer"] for error in problem["errors"]]


def test_problems_never_repeat_the_text(client):
    bodies = [
        {"texts": [PRIVATE, 5]}, {"text": {"nested": PRIVATE}}, {"text": PRIVATE + "\x00"},
        {"text": PRIVATE, "scorer": "none"}, {"text": PRIVATE, "k": PRIVATE},
        {"text": PRIVATE, "version": PRIVATE},
    ]  # fmt: skip
    answers = [client.post("/v1/predict", json=body) for body in bodies]
    assert {answer.status_code for answer in answers} == {422}
    assert not [answer.text for answer in answers if PRIVATE in answer.text]


def test_problems_stay_short_however_much_is_wrong(client):
    body = {"text": "a", "x" * 10_000: 1} | {f"field{i}": 1 for i in range(100)}
    problem = client.post("/v1/predict", json=body).json()
    assert len(problem["errors"]) == 20
    assert len(json.dumps(problem)) < 10_000
    assert problem["detail"].startswith("101 things are wrong")


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
