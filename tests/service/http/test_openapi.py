"""The published OpenAPI document tells the truth about errors and bodies."""

import pytest

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
