"""Requests that do not come to their end, over real sockets, and what must not be taken for one.

Time passes when a test says so.
"""

import asyncio
import http.client
import json
import re
import socket
import threading
from contextlib import ExitStack, suppress

import httpx
import pytest
import uvicorn
from starlette.responses import Response

from longtail.service.http import connections
from longtail.service.http.connections import LimitedProtocol
from longtail.service.routes.page import router as page_router

HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
BODY = b'{"text": "four"}'
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
UNREAD = b"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n"
READ_TIMEOUT_S = 10
SMUGGLED = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time can be moved on."""

    def __init__(self):
        super().__init__()
        self._seconds_ahead = 0.0

    def time(self):
        return super().time() + self._seconds_ahead

    def move(self, seconds):
        """Let the loop do all that has come, and then let time pass."""

        async def move_on():
            for _ in range(50):
                await asyncio.sleep(0)
            self._seconds_ahead += seconds

        asyncio.run_coroutine_threadsafe(move_on(), self).result(60)


def connect(address):
    url = httpx.URL(address)
    return socket.create_connection((url.host, url.port), timeout=60)


def read_to_end(connection):
    try:
        return b"".join(iter(lambda: connection.recv(2**16), b""))
    except ConnectionResetError:
        return b""


def read_answer(connection):
    """Return the status of one whole answer: head and body may come in several pieces."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def trickle(connection, clock):
    for _ in range(100):
        connection.sendall(b"x")
        clock.move(READ_TIMEOUT_S / 20)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(uvicorn.Config, "get_loop_factory", lambda config: lambda: clock)
    return clock


@pytest.fixture
def impatient(clock, open_server):
    with open_server(read_timeout_s=READ_TIMEOUT_S) as url:
        yield url


@pytest.mark.parametrize(
    "sent", [b"", b"POST /v1/pre", HEAD, WHOLE + HEAD], ids=["nothing", "line", "head", "second"]
)
def test_a_connection_with_half_a_head_is_closed(impatient, clock, sent):
    with connect(impatient) as connection:
        connection.sendall(sent)
        if sent == WHOLE + HEAD:
            assert read_answer(connection) == 200
        clock.move(READ_TIMEOUT_S)
        assert b"HTTP/1.1" not in read_to_end(connection)


@pytest.mark.parametrize(
    "rest",
    [b"Content-Length: 1000\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"],
    ids=["length", "chunked"],
)
def test_half_a_body_is_a_408_and_the_end_of_its_connection(impatient, clock, rest):
    with connect(impatient) as connection:
        connection.sendall(HEAD + rest)
        clock.move(READ_TIMEOUT_S)
        head, _, body = read_to_end(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408")
    assert b"urn:longtail:problem:body-timeout" in body
    assert b"The body did not come whole within 10 s; send it faster" in body


@pytest.mark.parametrize("begin", [HEAD + b"X: ", UNREAD], ids=["head", "answered body"])
def test_bytes_that_trickle_in_do_not_keep_a_connection_open(impatient, clock, begin):
    with connect(impatient) as connection:
        connection.sendall(begin)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            trickle(connection, clock)


def problem_of(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    assert b"connection: close" in head
    assert b"content-length: %d" % len(body) in head
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (HEAD + b"X: ", b"x"),
        (HEAD, b"X: yz\r\n"),
        (b"GET /v1?", b"x"),
        (WHOLE + HEAD + b"X: ", b"x"),
    ],
    ids=["value", "headers", "line", "second"],
)
def test_a_head_without_end_is_a_431_and_the_end_of_its_connection(impatient, clock, begin, more):
    with connect(impatient) as connection:
        connection.sendall(begin)
        if begin.startswith(WHOLE):
            assert read_answer(connection) == 200
        clock.move(0)
        # Not one byte behind the limit: closing with bytes unread may lose the answer.
        connection.sendall((more * (2**16 + 1))[: 2**16 + 1])
        status, problem = problem_of(read_to_end(connection))
    assert (status, problem["type"]) == (431, "urn:longtail:problem:head-too-large")
    assert "more than 65536 bytes" in problem["detail"]


@pytest.mark.parametrize("sent", [b"hello\r\n\r\n", b"\x16\x03\x01\x02\x00", b"GET / HTP\r\n\r\n"])
def test_what_is_no_http_is_a_problem_document(impatient, sent):
    with connect(impatient) as connection:
        connection.sendall(sent)
        status, problem = problem_of(read_to_end(connection))
    assert (status, problem["type"]) == (400, "urn:longtail:problem:not-http")


LIVE = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b"%x\r\n%b\r\n" % (len(BODY), BODY)
REFUSED = {
    "garbage": ([b"hello\r\n\r\n"], [400]),
    "garbage behind two": ([(LIVE + b"\r\n") * 2 + b"hello\r\n\r\n"], [200, 200, 400]),
    "garbage in a chunk behind one": ([WHOLE + CHUNKED + b"x\r\n"], [200, 400]),
    "too many requests": ([(LIVE + b"\r\n") * 18], [200] * 17 + [400]),
    "too many fields": ([LIVE + b"a: b\r\n" * 201], [431]),
    "too many trailers": ([CHUNKED + CHUNK + b"0\r\n" + b"a: b\r\n" * 200], [400]),
    "long trailer": ([CHUNKED + CHUNK + b"0\r\na: ", b"b" * (2**16 + 1)], [400]),
    "long extension": ([CHUNKED + b"1;", b"a" * (2**16 + 1)], [400]),
    "unknown coding": ([HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n"], [501]),
    "two codings": ([HEAD + b"Transfer-Encoding: gzip\r\n" + CHUNKED[len(HEAD) :]], [501]),
    "chunked in HTTP/1.0": ([CHUNKED.replace(b"1.1", b"1.0")], [400]),
}


def statuses_in(answers):
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", answers)]


@pytest.mark.parametrize(("parts", "statuses"), REFUSED.values(), ids=REFUSED)
def test_requests_are_answered_in_order_up_to_the_one_that_is_refused(server, parts, statuses):
    with connect(server) as connection:
        for part in parts:
            connection.sendall(part)
            assert httpx.get(f"{server}/livez").status_code == 200  # so the part was read
        assert statuses_in(read_to_end(connection)) == statuses


@pytest.mark.parametrize("sent", [CHUNKED + CHUNK + b"0\r\nHost: y\r\na: b\r\n\r\n" + LIVE])
def test_trailers_are_dropped(server, sent):
    with connect(server) as connection:
        connection.sendall(sent + b"Connection: close\r\n\r\n")
        assert statuses_in(read_to_end(connection)) == [200, 200]


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [(WHOLE, [200]), (WHOLE * 3, [200] * 3), (WHOLE[:-1], []), (LIVE, [])],
    ids=["one", "three", "half a body", "half a head"],
)
def test_a_client_that_stops_sending_gets_the_answers_to_what_came_whole(server, sent, statuses):
    with connect(server) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        assert statuses_in(read_to_end(connection)) == statuses


def test_a_request_that_was_answered_before_its_end_has_a_little_time_to_end(impatient, clock):
    with connect(impatient) as connection:
        connection.sendall(UNREAD)
        assert read_answer(connection) == 404
        clock.move(connections._LINGER_S)
        assert read_to_end(connection) == b""


def test_beyond_the_limit_the_connection_that_was_silent_for_longest_is_closed(clock, open_server):
    with open_server(max_connections=10) as url, ExitStack() as stack:
        first, *others = (stack.enter_context(connect(url)) for _ in range(10))
        for connection in (*others, first):
            connection.sendall(LIVE)
            clock.move(1)
        assert httpx.get(f"{url}/livez").status_code == 200
        assert read_to_end(others[0]) == b""
        for connection in (first, *others[1:]):
            connection.sendall(b"Connection: close\r\n\r\n")
            assert statuses_in(read_to_end(connection)) == [200]


@pytest.mark.parametrize(
    "rest",
    [b"Content-Length: %d\r\n\r\n" % len(SMUGGLED), b"Transfer-Encoding: chunked\r\n\r\n"],
    ids=["length", "chunked"],
)
def test_the_body_of_a_request_with_upgrade_is_not_the_next_request(impatient, clock, rest):
    with connect(impatient) as connection:
        connection.sendall(HEAD + UPGRADE + rest)
        clock.move(0)
        with suppress(ConnectionError):
            connection.sendall(SMUGGLED)
        answer = read_to_end(connection)
    assert answer.count(b"\r\ndate:") <= 1  # none where the reset came first
    assert b"alive" not in answer


@pytest.fixture
def paused(monkeypatch):
    """Is set whenever an answer is not read as fast as it is written."""
    event = threading.Event()

    def pause(protocol):
        pause_writing(protocol)
        event.set()

    pause_writing = LimitedProtocol.pause_writing
    monkeypatch.setattr(LimitedProtocol, "pause_writing", pause)
    return event


@pytest.fixture
def ask_without_reading(impatient, paused):
    """Open a connection whose client reads nothing until the test does."""
    with ExitStack() as stack:

        def ask(sent):
            paused.clear()
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            url = httpx.URL(impatient)
            connection.connect((url.host, url.port))
            connection.sendall(sent)
            assert paused.wait(60)
            return connection

        yield ask


UNREAD_ANSWERS = {
    "one": (b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n", 1),
    "last": (b"GET /long HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 1),
    "many": (b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n", 9),
}


@pytest.fixture
def long_page():
    """A page of 16 MiB, more than the buffers of sockets hold."""

    def get_long() -> Response:
        return Response(bytes(2**24))

    page_router.get("/long")(get_long)
    yield
    page_router.routes.pop()


@pytest.mark.parametrize(("sent", "times"), UNREAD_ANSWERS.values(), ids=UNREAD_ANSWERS)
def test_a_connection_whose_answer_is_not_read_is_aborted(
    long_page, ask_without_reading, clock, sent, times
):
    connection = ask_without_reading(sent * times)
    clock.move(0)
    clock.move(READ_TIMEOUT_S)
    clock.move(0)
    assert len(read_to_end(connection)) < 2**24


def test_unread_answers_of_all_connections_take_bounded_memory(
    monkeypatch, long_page, ask_without_reading, clock
):
    monkeypatch.setattr(connections, "MAX_UNREAD_BYTES", 2**24)
    slow = ask_without_reading(UNREAD_ANSWERS["one"][0])
    clock.move(READ_TIMEOUT_S / 2)
    faster = ask_without_reading(UNREAD_ANSWERS["one"][0])
    clock.move(0)
    assert len(read_to_end(slow)) < 2**24
    assert read_answer(faster) == 200


@pytest.mark.parametrize(
    ("line", "hosts", "status"),
    [
        (b"GET /livez HTTP/1.1", b"", b"400"),
        (b"GET /livez HTTP/1.1", b"Host: x\r\nHost: x\r\n", b"400"),
        (b"GET /livez HTTP/1.0", b"", b"200"),
        (b"GET /livez HTTP/1.0", b"Host: x\r\nHost: y\r\n", b"400"),
    ],
)
def test_a_request_has_one_host(impatient, line, hosts, status):
    with connect(impatient) as connection:
        connection.sendall(line + b"\r\nConnection: close\r\n" + hosts + b"\r\n")
        assert read_to_end(connection).split()[1] == status
