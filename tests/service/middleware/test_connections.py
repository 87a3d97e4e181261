"""Requests that do not come to their end, over real sockets, and what must not be taken for one.

On commit e37f807 all connections with half a request stayed open.
"""

from __future__ import annotations

import http.client
import socket
import time

import httpx
import pytest

HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
BODY = b'{"text": "four"}'
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
UNREAD = b"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n"
READ_TIMEOUT_S = 0.3


def connect(address):
    url = httpx.URL(address)
    return socket.create_connection((url.host, url.port), timeout=60)


def read_to_end(connection):
    try:
        return b"".join(iter(lambda: connection.recv(2**16), b""))
    except ConnectionResetError:
        return b""


def trickle(connection):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        connection.sendall(b"x")
        time.sleep(0.02)


@pytest.fixture
def impatient(open_server):
    with open_server(read_timeout_s=READ_TIMEOUT_S) as url:
        yield url


@pytest.mark.parametrize(
    "sent", [b"", b"POST /v1/pre", HEAD, WHOLE + HEAD], ids=["nothing", "line", "head", "second"]
)
def test_a_connection_with_half_a_head_is_closed(impatient, sent):
    with connect(impatient) as connection:
        connection.sendall(sent)
        received = read_to_end(connection)
    assert received.startswith(b"HTTP/1.1 200") == (sent == WHOLE + HEAD)


@pytest.mark.parametrize(
    "rest",
    [b"Content-Length: 1000\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"],
    ids=["length", "chunked"],
)
def test_half_a_body_is_a_408_and_the_end_of_its_connection(impatient, rest):
    with connect(impatient) as connection:
        connection.sendall(HEAD + rest)
        head, _, body = read_to_end(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408")
    assert b"urn:longtail:problem:body-timeout" in body
    assert b"The body did not come whole within 0.3 s; send it faster" in body


@pytest.mark.parametrize("begin", [HEAD + b"X: ", UNREAD], ids=["head", "answered body"])
def test_bytes_that_trickle_in_do_not_keep_a_connection_open(impatient, begin):
    with connect(impatient) as connection:
        connection.sendall(begin)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            trickle(connection)


def test_a_stream_may_pause_for_longer_than_a_body_may_take(impatient):
    line = b'{"text": "four"}\n'
    with connect(impatient) as connection:
        head = HEAD.replace(b"/predict", b"/batch").replace(b"/json", b"/x-ndjson")
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % (2 * len(line)) + line)
        time.sleep(3 * READ_TIMEOUT_S)
        connection.sendall(line)
        received = b""
        while b'"summary"' not in received:
            received += connection.recv(2**16)
    assert b'"complete": true, "num_lines": 2' in received


def test_the_pause_between_requests_may_be_longer_than_a_head_may_take(impatient):
    url = httpx.URL(impatient)
    connection = http.client.HTTPConnection(url.host, url.port, timeout=60)
    connection.connect()
    first = connection.sock
    for _ in range(2):
        connection.request("POST", "/v1/predict", BODY, {"Content-Type": "application/json"})
        assert connection.getresponse().read().startswith(b'{"model"')
        time.sleep(3 * READ_TIMEOUT_S)  # within the time that connections are kept open
    assert connection.sock is first
    connection.close()
