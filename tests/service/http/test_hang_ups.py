"""Clients that hang up in the middle of their body are 499: no fault, no traceback."""

import gzip
import logging
import re
import socket
import threading
import time

import httpx
import pytest

JSON, FORM, LINES = "application/json", "application/x-www-form-urlencoded", "application/x-ndjson"
BODIES = {
    "/v1/predict": (JSON, b'{"text": "some words"}'),
    "/v1/batch": (LINES, b'{"text": "some words"}\n{"text": "some more"}\n'),
    "/v1/projects/longtail/suggest": (FORM, b"text=some+words&limit=3"),
    "/v1/projects/longtail/suggest-batch": (JSON, b'{"documents": [{"text": "some words"}]}'),
    "/v2/models/longtail/infer": (JSON, b'{"inputs": [{"name": "text", "datatype": "BYTES"}]}'),
    "/v2/models/longtail/versions/2/infer": (JSON, b'{"inputs": [{"name": "text"}]}'),
}
LOG_LINE = re.compile(r"request method=POST route=\S+ status=(\d+)")
PATIENCE_S = 60.0


def chunk(part):
    return b"%x\r\n%s\r\n" % (len(part), part)


def half_request(path, *, is_chunked, is_gzip):
    media_type, body = BODIES[path]
    body = gzip.compress(body) if is_gzip else body
    half = body[: len(body) // 2]
    headers = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Type: {media_type}"]
    headers += ["Content-Encoding: gzip"] if is_gzip else []
    headers += ["Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {len(body)}"]
    return "\r\n".join(headers).encode() + b"\r\n\r\n" + (chunk(half) if is_chunked else half)


def hang_up_in(url, request):
    address = httpx.URL(url)
    with socket.create_connection((address.host, address.port), timeout=PATIENCE_S) as connection:
        connection.sendall(request)
        # Answered after what was sent before: so the service has begun to read the body.
        assert httpx.get(f"{url}/livez", timeout=PATIENCE_S).status_code == 200


def await_lines(caplog, wanted):
    """Return the statuses of the log lines about POST requests, once there are so many."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = [LOG_LINE.match(record.getMessage()) for record in list(caplog.records)]
        statuses = [int(match[1]) for match in found if match]
        if len(statuses) >= wanted:
            return statuses
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("is_gzip", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunked"])
def test_whoever_hangs_up_in_mid_body_is_logged_in_one_line(
    open_server, caplog, is_chunked, is_gzip
):
    with open_server(log_level="info") as url, caplog.at_level(logging.INFO):
        for path in BODIES:
            hang_up_in(url, half_request(path, is_chunked=is_chunked, is_gzip=is_gzip))
        statuses = await_lines(caplog, len(BODIES))
        metrics = httpx.get(f"{url}/metrics", timeout=PATIENCE_S).text
    assert statuses == [499] * len(BODIES)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]
    assert not [record for record in caplog.records if record.exc_info]
    assert 'status_class="5xx"' not in metrics
    assert f'longtail_problems_total{{reason="client-gone"}} {len(BODIES)}.0' in metrics


def test_a_stream_whose_client_does_not_wait_for_the_answers_is_a_499(
    open_server, caplog, make_loader, fake_predictor
):
    gate = threading.Event()

    class Slow(fake_predictor):
        def read(self, texts):
            assert "some words" not in texts or gate.wait(PATIENCE_S)
            return super().read(texts)

    media_type, body = BODIES["/v1/batch"]
    head = f"POST /v1/batch HTTP/1.1\r\nHost: x\r\nContent-Type: {media_type}\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    loader = make_loader(predictor_class=Slow)
    with open_server(loader, log_level="info") as url, caplog.at_level(logging.INFO):
        hang_up_in(url, request)
        assert await_lines(caplog, 1) == [499]
        gate.set()


def test_a_body_that_came_whole_is_answered_as_before(open_server, caplog):
    with open_server(log_level="info") as url, caplog.at_level(logging.INFO):
        for path in ("/v1/predict", "/v1/batch"):
            media_type, body = BODIES[path]
            packed = {"Content-Type": media_type, "Content-Encoding": "gzip"}
            answer = httpx.post(
                f"{url}{path}", content=gzip.compress(body), headers=packed, timeout=PATIENCE_S
            )
            assert answer.status_code == 200
        assert await_lines(caplog, 2) == [200, 200]
