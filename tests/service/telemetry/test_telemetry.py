"""What operators see of requests: metrics with few label values, log lines without texts."""

import io
import json
import logging
import re

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from longtail.service.telemetry.logs import JsonFormatter, request_id_of, start_log_context


def samples(client, name):
    families = text_string_to_metric_families(client.get("/metrics").text)
    return [sample for family in families for sample in family.samples if sample.name == name]


def test_requests_are_timed_by_route_method_and_status_class(fresh_client):
    fresh_client.post("/v1/predict", json={"text": "a"})
    fresh_client.post("/v1/predict", json={"text": ""})
    counts = {
        (sample.labels["method"], sample.labels["route"], sample.labels["status_class"])
        for sample in samples(fresh_client, "longtail_http_request_duration_seconds_count")
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


def test_strangers_cannot_make_new_label_values(fresh_client):
    for index in range(20):
        fresh_client.request(f"METHOD{index}", f"/nothing/{index}")
        fresh_client.post("/v1/predict", json={"text": "a", "scorer": f"magic{index}"})
    counted = samples(fresh_client, "longtail_http_request_duration_seconds_count")
    assert {sample.labels["method"] for sample in counted} <= {"GET", "POST", "other"}
    assert {sample.labels["route"] for sample in counted} >= {"none", "/v1/predict"}
    assert len(counted) < 10


def test_a_prediction_is_logged_in_one_line_without_its_text(fresh_client, caplog):
    with caplog.at_level(logging.INFO, "longtail.service.requests"):
        fresh_client.post("/v1/predict", json={"texts": ["secret", "secrets"], "k": 3})
    (line,) = [r.getMessage() for r in caplog.records if r.name == "longtail.service.requests"]
    assert re.fullmatch(
        r"request method=POST route=/v1/predict status=200 ms=\d+\.\d texts=2 k=3 version=2 "
        r"scorer=retrieval queue_ms=\d+\.\d compute_ms=\d+\.\d",
        line,
    )


def test_nothing_of_a_text_or_path_is_logged_when_a_request_fails(fresh_client, caplog):
    with caplog.at_level(logging.DEBUG):
        fresh_client.post("/v1/predict", json={"text": "secret\x00"})
        fresh_client.post("/v1/predict", json={"text": "secret", "scorer": "secret"})
        fresh_client.get("/secret")
    ours = [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("longtail.service")
    ]
    assert len(ours) >= 3
    assert "secret" not in "".join(ours)


@pytest.fixture
def logged():
    """Log by a formatter."""
    start_log_context()
    logger = logging.getLogger("some.place")
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logger.addHandler(handler)

    def log(formatter, *arguments, **options):
        handler.setFormatter(formatter)
        logger.warning(*arguments, **options)
        return stream.getvalue()

    yield log
    logger.removeHandler(handler)
    start_log_context()


def test_a_json_line_has_all_that_is_known(logged):
    start_log_context(request_id="r1", trace_id="t1")
    written = logged(JsonFormatter(), "took %d\nms", 3)
    assert written.count("\n") == 1
    line = json.loads(written)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning", "logger": "some.place", "message": "took 3\nms", "request_id": "r1",
        "trace_id": "t1",
    }  # fmt: skip


@pytest.mark.parametrize("given", [None, "", "x" * 129, "a b", "a\nb", "é"])
def test_without_a_usable_one_it_gets_a_new_one(given):
    assert len({request_id_of(given), request_id_of(given), given}) == 3


def test_a_request_that_fails_keeps_its_connection_and_is_logged_once(
    open_server, make_loader, fake_predictor, caplog
):
    class Failing(fake_predictor):
        def predict(self, texts, **options):
            if "fail" in texts:
                raise KeyError("inner")
            return super().predict(texts, **options)

    with open_server(make_loader(predictor_class=Failing)) as url:
        with httpx.Client(base_url=url, timeout=300) as client:
            answers = [client.post("/v1/predict", json={"text": "fail"}) for _ in range(2)]
        streams = {id(x.extensions["network_stream"]) for x in answers}
    assert [x.status_code for x in answers] == [500, 500]
    assert len(streams) == 1
    assert caplog.text.count("Traceback") == 2
    assert len(answers[0].headers.get_list("X-Request-ID")) == 1


def test_all_lines_about_a_request_have_its_id_and_no_others(client):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("longtail.service")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel("INFO")
    try:
        for number in range(3):
            header = {"X-Request-ID": f"id-{number}"}
            client.post("/v1/predict", json={"text": "secret", "k": number + 1}, headers=header)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["request_id"], line["k"]) for line in lines] == [
        ("id-0", 1), ("id-1", 2), ("id-2", 3)
    ]  # fmt: skip
    assert {"method", "route", "status", "ms", "version"} <= lines[0].keys()
    assert "secret" not in stream.getvalue()
