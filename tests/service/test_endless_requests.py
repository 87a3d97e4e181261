"""Each element of a request without end: what the service keeps of it is bounded, on any number of
connections, and others are answered.
"""

import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

SERVE = """
import logging, sys
from pathlib import Path
from longtail.service import server
from longtail.service.app import create_app
from longtail.service.settings import Settings
logging.basicConfig(level="INFO")
server.serve(create_app(Settings(registry=Path(sys.argv[1]), port=0, api_keys="a:" + 64 * "0")))
"""
PATIENCE_S = 300.0
HEAD = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "blank lines": (b"", b"\r\n"), "path": (b"GET /", b"a"), "parameters": (b"GET /livez?", b"a&"),
    "field name": (HEAD, b"a"), "field value": (HEAD + b"X: ", b"a"), "fields": (HEAD, b"a:\r\n"),
    "chunk size": (CHUNKED, b"0"), "chunk extension": (CHUNKED + b"1;", b"a"),
    "chunks": (CHUNKED, b"1\r\na\r\n"),
    "body": (POST + b"Content-Length: 999999999999\r\n\r\n", b"a"),
    "trailers": (CHUNKED + b"1\r\n{\r\n0\r\n", b"a:b\r\n"),
    "trailer value": (CHUNKED + b"1\r\n{\r\n0\r\na:", b"b"), "requests": (b"", HEAD + b"\r\n"),
    "requests with bodies": (b"", POST + b"Content-Length: 1\r\n\r\na"),
}  # fmt: skip
NUM_CONNECTIONS = 100
NUM_BYTES = 60_000
"""Sent on each connection, as the head of a request may have 65,536."""
NUM_BYTES_ON_ONE = 2**22
MAX_KEPT_BYTES = 2**26


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    if not Path("/proc/self/statm").exists():
        pytest.skip("the memory of another process is read in /proc")
    command = [sys.executable, "-c", SERVE, str(tmp_path_factory.mktemp("registry"))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, bufsize=1) as process:
        lines = iter(process.stderr.readline, "")
        line = next(x for x in lines if "running on http" in x)
        process.stderr.close()
        yield process, line.split("running on ")[1].split()[0]
        process.kill()


def resident_bytes(process):
    pages = Path(f"/proc/{process.pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4096


def send(connection, content):
    """Send some bytes; return whether the service has taken them."""
    with suppress(OSError):  # closed, or not read from any more
        connection.sendall(content)
        return True
    return False


@pytest.mark.parametrize(("begin", "element"), ENDLESS.values(), ids=ENDLESS)
def test_what_is_kept_of_a_request_without_end_is_bounded(service, begin, element):
    process, url = service
    address = httpx.URL(url)
    livez = f"{url}/livez"
    assert httpx.get(livez, timeout=PATIENCE_S).status_code == 200
    before = resident_bytes(process)
    with ExitStack() as stack:
        for _ in range(NUM_CONNECTIONS):
            connection = socket.create_connection((address.host, address.port), timeout=5)
            stack.enter_context(connection)
            send(connection, begin + element * (NUM_BYTES // len(element)))
        for _ in range(NUM_BYTES_ON_ONE // 2**18):
            if not send(connection, element * (2**18 // len(element))):
                break
        statuses = [httpx.get(livez, timeout=PATIENCE_S).status_code for _ in range(2)]
        kept = resident_bytes(process) - before
    assert statuses == [200, 200]
    assert kept < MAX_KEPT_BYTES
