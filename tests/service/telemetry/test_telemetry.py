"""What operators see of requests: metrics with few label values, log lines without texts."""

import logging
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families


def samples(client, name):
    families = text_string_to_metric_families(client.get("/metrics").text)
    return [sample for family in families for sample in family.samples if sample.name == name]


@pytest.fixture
def client(fresh_client):
    return fresh_client


def test_requests_are_timed_by_route_method_and_status_class(client):
    client.post("/v1/predict", json={"text": "a"})
    client.post("/v1/predict", json={"text": ""})
    counts = {
        (sample.labels["method"], sample.labels["route"], sample.labels["status_class"])
        for sample in samples(client, "longtail_http_request_duration_seconds_count")
    }
    assert counts >= {("POST", "/v1/predict", "2xx"), ("POST", "/v1/predict", "4xx")}


def test_an_error_that_is_not_expected_counts_as_5xx(open_client, make_loader, fake_predictor):
    class Failing(fake_predictor):
        def predict(self, texts, **options):
            if list(texts) == ["a"]:
                raise KeyError
            return super().predict(texts, **options)

    with open_client(make_loader(predictor_class=Failing)) as client:
        client.post("/v1/predict", json={"text": "a"})
        counted = samples(client, "longtail_http_request_duration_seconds_count")
    assert "5xx" in {sample.labels["status_class"] for sample in counted}


def test_strangers_cannot_make_new_label_values(client):
    for index in range(20):
        client.request(f"METHOD{index}", f"/nothing/{index}")
        client.post("/v1/predict", json={"text": "a", "scorer": f"magic{index}"})
    counted = samples(client, "longtail_http_request_duration_seconds_count")
    assert {sample.labels["method"] for sample in counted} <= {"GET", "POST", "other"}
    assert {sample.labels["route"] for sample in counted} >= {"none", "/v1/predict"}
    assert len(counted) < 10


def test_a_prediction_is_logged_in_one_line_without_its_text(client, caplog):
    with caplog.at_level(logging.INFO, "longtail.service.requests"):
        client.post("/v1/predict", json={"texts": ["secret", "secrets"], "k": 3})
    (line,) = [r.getMessage() for r in caplog.records if r.name == "longtail.service.requests"]
    assert re.fullmatch(
        r"request method=POST route=/v1/predict status=200 ms=\d+\.\d texts=2 k=3 version=2 "
        r"scorer=retrieval queue_ms=\d+\.\d compute_ms=\d+\.\d",
        line,
    )


def test_nothing_of_a_text_or_path_is_logged_when_a_request_fails(client, caplog):
    with caplog.at_level(logging.DEBUG):
        client.post("/v1/predict", json={"text": "secret\x00"})
        client.post("/v1/predict", json={"text": "secret", "scorer": "secret"})
        client.get("/secret")
    ours = [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("longtail.service")
    ]
    assert len(ours) >= 3
    assert "secret" not in "".join(ours)
