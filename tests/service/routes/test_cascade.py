"""Answers of a cascade say which scorer's they are, and metrics count them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families


@pytest.fixture
def client(open_client, make_loader, fake_predictor):
    class Cascading(fake_predictor):
        """Answers short texts by `fast`."""

        scorers = ("retrieval", "fast", "ensemble", "cascade")

        def predict(self, texts, **options):
            found = super().predict(texts, **options)
            if options.get("scorer") != "cascade":
                return found
            return [
                replace(prediction, stage="fast" if len(text) < 5 else "ensemble")
                for text, prediction in zip(texts, found, strict=True)
            ]

    with open_client(make_loader(predictor_class=Cascading)) as opened:
        yield opened


def counted(client):
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {
        (sample.labels["version"], sample.labels["stage"]): sample.value
        for family in families
        for sample in family.samples
        if sample.name == "longtail_cascade_texts_total"
    }


def test_every_text_says_whose_answer_it_has(client):
    asked = {"texts": ["four", "longer", "a"], "scorer": "cascade", "k": 1}
    answer = client.post("/v1/predict", json=asked).json()
    assert answer["scorer"] == "cascade"
    assert [result["stage"] for result in answer["results"]] == ["fast", "ensemble", "fast"]
    other = client.post("/v1/predict", json=asked | {"scorer": "fast"}).json()
    assert all("stage" not in result for result in other["results"])


def test_lines_of_a_batch_say_it_too_and_all_are_counted(client):
    lines = [{"text": "four", "scorer": "cascade"}, {"text": "longer", "scorer": "cascade"},
             {"text": "four"}]  # fmt: skip
    content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    answer = client.post(
        "/v1/batch", content=content, headers={"content-type": "application/x-ndjson"}
    )
    results = [json.loads(line) for line in answer.text.splitlines()][:-1]
    assert [result.get("stage") for result in results] == ["fast", "ensemble", None]
    client.post("/v1/predict", json={"texts": ["a", "b", "longer"], "scorer": "cascade"})
    assert counted(client) == {("2", "fast"): 3.0, ("2", "ensemble"): 2.0}


def test_the_open_inference_protocol_has_the_stage_of_each_text(client):
    asked = {
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [2], "data": ["four", "longer"]}],
        "parameters": {"scorer": "cascade", "k": 1},
        "outputs": [{"name": "stage"}],
    }
    answer = client.post("/v2/models/longtail/infer", json=asked).json()
    assert [output["data"] for output in answer["outputs"]] == [["fast", "ensemble"]]
