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


def test_the_limits_of_the_service_are_published(open_client):
    limits = {"max_k": 7, "max_texts_per_request": 3, "max_text_characters": 90}
    with open_client(**limits) as client:
        document = client.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    options = document["paths"]["/v1/batch"]["post"]["parameters"]
    of_lines = {each["name"]: each["schema"] for each in options}
    for fields in (of_lines, *(schemas[x]["properties"] for x in ("BatchLine", "PredictRequest"))):
        assert (fields["k"]["minimum"], fields["k"]["maximum"]) == (1, 7)
    assert (fields["texts"]["minItems"], fields["texts"]["maxItems"]) == (1, 3)
    assert fields["text"]["maxLength"] == fields["texts"]["items"]["maxLength"] == 90
    assert fields["include"]["anyOf"][0]["maxItems"] == fields["exclude"]["maxItems"] == 10_000


def test_the_documented_examples_are_answered(client, document):
    for example in document["components"]["schemas"]["PredictRequest"]["examples"]:
        assert client.post("/v1/predict", json=example).status_code == 200


def test_the_examples_of_answers_are_such_answers(document):
    for model in (LabelList, LabelDetail):
        (example,) = document["components"]["schemas"][model.__name__]["examples"]
        assert model.model_validate(example).model_dump(mode="json") == example
