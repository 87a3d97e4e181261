"""What every kind of answer says of how much was read and known, and its warnings."""

from dataclasses import replace

import pytest

from longtail.models.results import AnswerWarning

LONG = "word " * 119 + "unknown"
WARNING = AnswerWarning("unreliable-probabilities", "too high", ("L1",))


@pytest.fixture
def cautious(open_client, make_loader, fake_predictor):
    """A service whose model warns of the label L1 in each answer that has it."""

    class Cautious(fake_predictor):  # type: ignore[misc,valid-type]
        def predict(self, texts, **options):
            found = super().predict(texts, **options)
            return [
                replace(x, warnings=(WARNING,) if any(y.id == "L1" for y in x.labels) else ())
                for x in found
            ]

    with open_client(make_loader(predictor_class=Cautious)) as client:
        yield client


def test_an_answer_tells_what_was_read_of_the_text_and_how_much_is_known(client):
    answer = client.post("/v1/predict", json={"texts": [LONG, "unknown", "two words"], "k": 1})
    counts = [
        [x[name] for name in ("num_tokens", "num_text_tokens", "known_tokens", "truncated")]
        for x in answer.json()["results"]
    ]
    assert counts == [[100, 120, 100, True], [1, 1, 0, False], [2, 2, 2, False]]


def infer(client, **parameters):
    inputs = [{"name": "text", "shape": [2], "datatype": "BYTES", "data": [LONG, "unknown"]}]
    body = {"inputs": inputs, "parameters": parameters}
    answer = client.post("/v2/models/longtail/infer", json=body).json()
    return {each["name"]: each for each in answer["outputs"]}


def test_tensors_tell_it_too(client):
    found = infer(client, k=1)
    assert found["num_tokens"]["data"] == [100, 1]
    assert found["num_text_tokens"] == {
        "name": "num_text_tokens", "datatype": "INT32", "shape": [2], "data": [120, 1]
    }  # fmt: skip
    assert found["known_tokens"]["data"] == [100, 0]
    assert found["truncated"]["data"] == [True, False]


def test_warnings_stand_in_the_answer_only_where_there_are_some(cautious):
    body = {"texts": ["one", "two"], "k": 2, "threshold": 0.5}
    results = cautious.post("/v1/predict", json=body).json()["results"]
    assert results[0]["warnings"] == [
        {"code": "unreliable-probabilities", "detail": "too high", "label_ids": ["L1"]}
    ]
    (best,) = cautious.post("/v1/predict", json={"text": "one", "k": 1}).json()["results"]
    assert "warnings" not in best
