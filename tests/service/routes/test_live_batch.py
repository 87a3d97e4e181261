"""Batches over real sockets: clients that are slow, that stop, that hang up, and that never end."""

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
from longtail.service.routes.batch import _LINE_BYTES, _WINDOW_BYTES
from longtail.service.settings import Settings

HEAD = (
    b"POST /v1/batch?k=1 HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
MAX_LINES = _WINDOW_BYTES // _LINE_BYTES
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
        return not self.service.streams.num_running and not self.service.engine.admission.tokens


@pytest.fixture
def serve(registry, make_loader):
    @contextmanager
    def start(loader=None, **settings) -> Iterator[Live]:
        app = create_app(
            Settings(registry=registry.folder, log_level="warning", **settings),
            load=loader or make_loader(),
        )
        config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
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


def chunk(*lines: bytes) -> bytes:
    body = b"".join(line + b"\n" for line in lines)
    return f"{len(body):x}\r\n".encode() + body + b"\r\n"


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


def test_answers_come_while_the_client_still_sends(serve):
    with serve() as live, live.connect() as connection:
        connection.sendall(HEAD + chunk(line_of(0)))
        answers = iter(Answers(connection))
        assert next(answers)["id"] == 0
        connection.sendall(chunk(line_of(1)) + chunk(line_of(2)))
        assert [next(answers)["id"], next(answers)["id"]] == [1, 2]
        connection.sendall(b"0\r\n\r\n")
        assert next(answers)["summary"]["num_results"] == 3
        live.until(live.is_free)


def test_a_long_stream_is_answered_in_order_and_in_bounded_memory(serve, make_loader):
    num_lines = 1000
    with serve() as live, live.connect() as connection:
        most_tasks = 0

        def send() -> None:
            connection.sendall(HEAD)
            for start in range(0, num_lines, 100):
                connection.sendall(chunk(*(line_of(i) for i in range(start, start + 100))))
            connection.sendall(b"0\r\n\r\n")

        sender = threading.Thread(target=send)
        sender.start()
        ids = []
        for answer in Answers(connection):
            if "id" in answer:
                ids.append(answer["id"])
                most_tasks = max(most_tasks, live.service.engine.admission.tokens)
        sender.join()
    assert ids == list(range(num_lines))
    assert answer["summary"]["complete"]
    assert most_tasks <= 3 * MAX_LINES  # a line of one letter is taken for two or three tokens


def test_a_client_that_does_not_read_is_not_read_from_and_frees_everything(serve):
    with serve(stream_idle_timeout_s=0.5) as live:
        connection = live.connect(SO_RCVBUF=4096, SO_SNDBUF=4096)
        connection.sendall(HEAD)
        num_sent = 0

        def send() -> None:
            nonlocal num_sent
            lines = [line_of("x" * 900) for _ in range(100)]
            try:
                while True:
                    connection.sendall(chunk(*lines))
                    num_sent += len(lines)
            except OSError:
                pass

        sender = threading.Thread(target=send)
        sender.start()
        live.until(lambda: 'lines_total{outcome="result"}' in metrics_of(live))
        assert live.get("/livez") == 200
        live.until(live.is_free)  # after the timeout
        connection.shutdown(socket.SHUT_RDWR)  # wakes the sender
        sender.join()
        connection.close()
        live.until(lambda: not live.server.server_state.connections)
    assert num_sent < 20_000


def test_a_client_that_sends_nothing_gets_its_answers_and_an_end(serve):
    with serve(stream_idle_timeout_s=0.05) as live, live.connect() as connection:
        connection.sendall(HEAD + chunk(line_of(0)))
        result, end = Answers(connection)
        assert result["id"] == 0
        assert not end["summary"]["complete"]
        assert "the client sent nothing for 0.05 s" in end["summary"]["error"]["detail"]
        live.until(live.is_free)


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
        connection.sendall(HEAD + chunk(line_of(0, "wait"), *lines))
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


def stop(live: Live) -> None:
    loop = live.server.servers[0].get_loop()
    loop.call_soon_threadsafe(live.service.stopping.set)


def test_at_a_stop_a_stream_that_is_still_sent_ends_with_a_summary_that_says_so(serve):
    with serve() as live, live.connect() as connection:
        connection.sendall(HEAD + chunk(line_of(0)))
        answers = iter(Answers(connection))
        assert next(answers)["id"] == 0
        stop(live)
        summary = next(answers)["summary"]
        live.until(live.is_free)
    assert (summary["complete"], summary["num_lines"], summary["num_results"]) == (False, 1, 1)
    assert "stopping" in summary["error"]["detail"]


def test_at_a_stop_lines_without_a_result_have_an_error_each(serve, make_loader, fake_predictor):
    predictor_class, busy, gate = gated(fake_predictor)
    with (
        serve(make_loader(predictor_class=predictor_class), shutdown_timeout_s=0) as live,
        live.connect() as connection,
    ):
        connection.sendall(HEAD + chunk(line_of(0, "wait"), line_of(1, "wait too")))
        assert busy.wait(PATIENCE_S)
        stop(live)
        answers = list(Answers(connection))
        gate.set()
    assert [line["id"] for line in answers[:-1]] == [0, 1]
    assert all("stopping" in line["error"]["detail"] for line in answers[:-1])
    summary = answers[-1]["summary"]
    assert (summary["complete"], summary["num_lines"], summary["num_errors"]) == (False, 2, 2)


def metrics_of(live: Live) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=PATIENCE_S)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def test_overload_is_a_429_with_the_time_to_come_back_and_probes_answer(
    serve, make_loader, fake_predictor, monkeypatch
):
    monkeypatch.setattr("longtail.service.app.MAX_STREAMS", 1)
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
        with live.connect() as connection:
            connection.sendall(HEAD)
            live.until(lambda: live.service.streams.num_running == 1)
            refused.append(ask("/v1/batch", b"", "application/x-ndjson"))
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
