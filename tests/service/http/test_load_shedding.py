"""Refused before anything is read: no body, no log line, but all that a client can use."""

import gzip
import logging
import re
import socket
import threading
import time
from contextlib import ExitStack

import httpx
import pytest

from longtail.service.http import limits
from longtail.service.wire.problems import problem_of

JSON = {"content-type": "application/json"}
PATHS = [
    "/v1/predict", "/v1/batch", "/v2/models/longtail/infer", "/v2/models/longtail/versions/2/infer",
    "/v1/projects/v2-retrieval/suggest", "/v1/projects/v2-retrieval/suggest-batch",
]  # fmt: skip


@pytest.fixture
def full(open_client):
    """Start a service that has no room."""
    with ExitStack() as stack:

        def start(**settings):
            client = stack.enter_context(open_client(max_queue_tokens=10, **settings))
            admission = client.app.state.service.engine.admission
            stack.enter_context(admission.admit(10, 30))
            return client

        yield start


class NeverRead:
    """The body of a request that must not be read."""

    def __iter__(self):
        return self

    def __next__(self):
        pytest.fail("the body was read")


@pytest.mark.parametrize("path", PATHS)
def test_whatever_asks_for_work_is_refused_unread(full, path):
    client = full()
    answer = client.post(path, content=NeverRead(), headers=JSON | {"X-Request-ID": "mine"})
    assert answer.status_code == 429
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.headers["retry-after"], answer.headers["x-request-id"]) == ("1", "mine")
    assert answer.headers["x-content-type-options"] == "nosniff"
    problem = answer.json()
    assert problem.pop("error", problem["detail"]) == problem["detail"]
    assert ("error" in answer.json()) == path.startswith("/v2")
    detail = "10 tokens of text are waiting, and 10 may; ask again later"
    expected = problem_of(limits.OVERLOADED, detail).model_dump(exclude_none=True)
    assert problem == expected | {"instance": path}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/livez", 200), ("GET", "/readyz", 200), ("GET", "/metrics", 200),
     ("GET", "/v1/models", 200), ("GET", "/v1/predict", 405), ("POST", "/nothing", 404),
     ("POST", "/v1/admin/rollback", 403)],
)  # fmt: skip
def test_all_else_is_answered(full, method, path, status):
    assert full().request(method, path).status_code == status


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"text": ""}', b'{"text": "a"}', b'{"text": "a", "scorer": "magic"}']
)
def test_no_place_is_held_after_an_answer(client, body):
    client.post("/v1/predict", content=body, headers=JSON)
    admission = client.app.state.service.engine.admission
    assert admission.tokens == 0
    assert not admission._parse_slots.locked()


FORM, LINES = "application/x-www-form-urlencoded", "application/x-ndjson"
BODIES = {
    "/v1/predict": (JSON["content-type"], b'{"text": "some words"}'),
    "/v1/batch": (LINES, b'{"text": "some words"}\n{"text": "some more"}\n'),
    "/v1/projects/longtail/suggest": (FORM, b"text=some+words&limit=3"),
    "/v1/projects/longtail/suggest-batch": (
        JSON["content-type"], b'{"documents": [{"text": "some words"}]}',
    ),
    "/v2/models/longtail/infer": (
        JSON["content-type"], b'{"inputs": [{"name": "text", "datatype": "BYTES"}]}',
    ),
    "/v2/models/longtail/versions/2/infer": (
        JSON["content-type"], b'{"inputs": [{"name": "text"}]}',
    ),
}  # fmt: skip
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
