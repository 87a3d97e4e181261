"""The log: what each line has, for people and for machines, and the ids of requests."""

import io
import json
import logging

import httpx
import pytest

from longtail.service.telemetry.logs import JsonFormatter, request_id_of, start_log_context


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
