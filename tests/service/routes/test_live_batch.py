"""Batches over real sockets: clients that do not read, that hang up, and a service that stops."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import uvicorn

from longtail.service.app import create_app
from longtail.service.routes.batch import _HELD_BYTES, _LINE_BYTES
from longtail.service.server import uvicorn_options
from longtail.service.settings import Settings

HEAD = (
    b"POST /v1/batch?k=%d HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
    b"Content-Length: %d\r\n\r\n"
)
MAX_LINES = _HELD_BYTES // _LINE_BYTES
PATIENCE_S = 60.0


@dataclass
class Live:
    """A server in a thread of this process, whose insides can be looked at."""

    server: uvicorn.Server
    service: object

    port: int

    def connect(self, **options) -> socket.socket:
        connection = socket.socket()
        for option, value in options.items():
            connection.setsockopt(socket.SOL_SOCKET, getattr(socket, option), value)
        connection.settimeout(PATIENCE_S)
        connection.connect(("127.0.0.1", self.port))
        return connection

    def get(self, path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("GET", path)
        status = connection.getresponse().status
        connection.close()
        return status

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.002)

    def is_free(self) -> bool:
        return not self.service.batches.num_running and not self.service.engine.admission.tokens


@pytest.fixture
def serve(registry, make_loader):
    @contextmanager
    def start(loader=None, **settings) -> Iterator[Live]:
        chosen = Settings(registry=registry.folder, log_level="warning", **settings)
        app = create_app(chosen, load=loader or make_loader())
        options = uvicorn_options(chosen) | {"timeout_graceful_shutdown": 1}
        server = uvicorn.Server(uvicorn.Config(app, **options))
        listener = socket.socket()
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):  # small: they are soon full
            listener.setsockopt(socket.SOL_SOCKET, option, 4096)
        listener.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        live = Live(server, app.state.service, listener.getsockname()[1])
        live.until(lambda: server.started)
        live.until(lambda: live.get("/readyz") == 200)
        try:
            yield live
        finally:
            server.should_exit = True
            thread.join()
            listener.close()

    return start


def request(*lines: bytes, k: int = 1) -> bytes:
    body = b"".join(line + b"\n" for line in lines)
    return HEAD % (k, len(body)) + body


def line_of(index: object, text: str = "a") -> bytes:
    return json.dumps({"id": index, "text": text}).encode()


class Answers:
    """The lines of an answer while it comes."""

    def __init__(self, connection: socket.socket) -> None:
        self._answer = http.client.HTTPResponse(connection, method="POST")
        self._answer.begin()
        assert self._answer.status == 200

    def __iter__(self):
        return iter(lambda: json.loads(self._answer.readline() or b"null"), None)


def test_many_lines_are_answered_in_order_and_in_bounded_memory(serve):
    num_lines = 1000
    with serve() as live, live.connect() as connection:
        connection.sendall(request(*map(line_of, range(num_lines))))
        most_tokens, ids = 0, []
        for answer in Answers(connection):
            if "id" in answer:
                ids.append(answer["id"])
                most_tokens = max(most_tokens, live.service.engine.admission.tokens)
    assert ids == list(range(num_lines))
    assert answer["summary"]["complete"]
    assert most_tokens <= 3 * MAX_LINES  # a line of one letter is taken for two or three tokens


def test_answers_come_before_the_last_line_is_computed(serve, make_loader, fake_predictor):
    predictor_class, _, gate = gated(fake_predictor)
    with serve(make_loader(predictor_class=predictor_class)) as live, live.connect() as connection:
        lines = [line_of(i) for i in range(MAX_LINES + 1)]
        connection.sendall(request(*lines, line_of("last", "wait")))
        answers = iter(Answers(connection))
        assert next(answers)["id"] == 0
        gate.set()
        assert list(answers)[-1]["summary"]["complete"]


def test_a_client_that_does_not_read_is_aborted_and_frees_everything(serve):
    with serve(read_timeout_s=2) as live:
        connection = live.connect(SO_RCVBUF=4096)
        connection.sendall(request(*map(line_of, range(1000)), k=8))
        live.until(lambda: 'lines_total{outcome="result"}' in metrics_of(live))
        live.until(live.is_free)  # after the timeout
        connection.close()
    assert live.service.manager.served


def gated(fake_predictor):
    busy, gate = threading.Event(), threading.Event()

    class Gated(fake_predictor):
        def predict(self, texts, **options):
            if "wait" in texts:
                busy.set()
                assert gate.wait(PATIENCE_S)
            return super().predict(texts, **options)

    return Gated, busy, gate


def test_a_client_that_hangs_up_in_mid_stream_frees_everything(serve, make_loader, fake_predictor):
    predictor_class, busy, gate = gated(fake_predictor)
    loader = make_loader(predictor_class=predictor_class)
    with serve(loader) as live:
        connection = live.connect()
        lines = (line_of(i) for i in range(100))
        connection.sendall(request(line_of(0, "wait"), *lines))
        assert busy.wait(PATIENCE_S)
        live.until(lambda: live.service.engine.admission.tokens > 100)
        connection.close()
        live.until(live.is_free)
        assert not any(live.service.engine._queue._items.values())
        gate.set()
        assert live.get("/readyz") == 200
    assert all("wait" in texts for texts in loader.loaded[0].calls if "a" in texts)


def test_work_for_a_single_client_that_hangs_up_is_dropped(serve, make_loader, fake_predictor):
    predictor_class, busy, gate = gated(fake_predictor)
    loader = make_loader(predictor_class=predictor_class)
    with serve(loader) as live:
        connections = [live.connect() for _ in range(2)]
        for connection, text in zip(connections, ("wait", "gone"), strict=True):
            body = json.dumps({"text": text}).encode()
            head = "POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert busy.wait(PATIENCE_S)
        live.until(lambda: any(live.service.engine._queue._items.values()))
        for connection in connections:
            connection.close()
        live.until(live.is_free)
        gate.set()
        live.until(lambda: 'reason="client-gone"} 2.0' in metrics_of(live))
    assert ["gone"] not in loader.loaded[0].calls


def test_at_a_stop_no_more_lines_are_begun_and_the_summary_says_so(
    serve, make_loader, fake_predictor
):
    predictor_class, busy, gate = gated(fake_predictor)
    with serve(make_loader(predictor_class=predictor_class)) as live, live.connect() as connection:
        connection.sendall(request(line_of(0, "wait"), *map(line_of, range(2 * MAX_LINES))))
        assert busy.wait(PATIENCE_S)
        loop = live.server.servers[0].get_loop()
        loop.call_soon_threadsafe(live.service.stopping.set)
        gate.set()
        *results, end = Answers(connection)
        live.until(live.is_free)
    assert 0 < len(results) <= MAX_LINES
    assert not end["summary"]["complete"]
    assert "stopping" in end["summary"]["error"]["detail"]


def metrics_of(live: Live) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=PATIENCE_S)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def test_overload_is_a_429_with_the_time_to_come_back_and_probes_answer(
    serve, make_loader, fake_predictor, monkeypatch
):
    monkeypatch.setattr("longtail.service.app.MAX_BATCHES", 1)
    predictor_class, busy, gate = gated(fake_predictor)
    loader = make_loader(predictor_class=predictor_class)
    with serve(loader, max_queue_tokens=4) as live:
        statuses = []

        def ask(path: str, body: bytes, media_type: str):
            connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=PATIENCE_S)
            connection.request("POST", path, body, {"Content-Type": media_type})
            answer = connection.getresponse()
            answer.read()
            connection.close()
            return answer.status, answer.getheader("Retry-After")

        waiting = threading.Thread(
            target=lambda: statuses.append(
                ask("/v1/predict", b'{"text": "wait"}', "application/json")
            )
        )
        waiting.start()
        assert busy.wait(PATIENCE_S)
        refused = [
            ask("/v1/predict", b'{"text": "a longer text"}', "application/json"),
            ask("/v1/predict", b'{"texts": ["a", "b", "c"]}', "application/json"),
        ]
        probes = [live.get(path) for path in ("/livez", "/readyz", "/metrics", "/v1/models")]
        gate.set()
        waiting.join()
        assert ask("/v1/predict", b'{"text": "a longer text"}', "application/json")[0] == 200
        gate.clear()
        with live.connect() as connection:
            connection.sendall(request(line_of(0, "wait")))
            live.until(lambda: live.service.batches.num_running == 1)
            refused.append(ask("/v1/batch", b"", "application/x-ndjson"))
            gate.set()
    assert refused == [(429, "1"), (429, "1"), (429, "5")]
    assert probes == [200, 200, 200, 200]
    assert statuses == [(200, None)]


def test_a_deadline_is_a_504(serve, make_loader, fake_predictor):
    predictor_class, _, gate = gated(fake_predictor)
    with serve(make_loader(predictor_class=predictor_class)) as live:
        connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=PATIENCE_S)
        body = json.dumps({"text": "wait", "timeout_s": 0.01})
        connection.request("POST", "/v1/predict", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        problem = json.loads(answer.read())
        gate.set()
        connection.close()
    assert (answer.status, problem["type"]) == (504, "urn:longtail:problem:deadline")
    assert answer.getheader("Retry-After") == "1"
