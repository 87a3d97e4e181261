"""Probes and the page take HEAD, with the headers of GET and without a body."""

from __future__ import annotations

import http.client

import httpx
import pytest


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/", "/docs", "/page/app.js"])
def test_head_is_get_without_a_body(client, path):
    got, head = client.get(path), client.head(path)
    assert (head.status_code, head.content) == (got.status_code, b"")
    assert head.headers["content-length"] == got.headers["content-length"]


def test_a_real_server_sends_no_body_and_keeps_the_connection(open_server):
    with open_server() as url:
        address = httpx.URL(url)
        connection = http.client.HTTPConnection(address.host, address.port, timeout=60)
        for path in ("/livez", "/readyz", "/docs"):
            connection.request("HEAD", path)
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b""), path
        connection.request("GET", "/livez")
        assert connection.getresponse().read() == b'{"status":"alive"}'
        connection.close()
