"""HEAD answers as GET, without a body, on every route that takes GET; it was 405 on e37f807."""

from __future__ import annotations

import http.client
import logging

import httpx

PARAMETERS = {"label_id": "L1", "project_id": "longtail", "model": "longtail", "version": "2"}


def get_paths(document):
    return [path.format(**PARAMETERS) for path, each in document["paths"].items() if "get" in each]


def test_every_route_that_takes_get_takes_head(client):
    paths = [*get_paths(client.get("/openapi.json").json()), "/", "/docs", "/openapi.json"]
    paths += ["/page/app.js", "/v1/labels?id=L1", "/v1/labels/none", "/v1/labels?limit=x"]
    assert len(paths) > 15
    for path in paths:
        got, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (got.status_code, b""), path
        assert head.headers["content-type"] == got.headers["content-type"]
        if not path.startswith("/metrics"):  # which is another text each time
            assert head.headers["content-length"] == got.headers["content-length"]


def test_where_there_is_no_get_there_is_no_head(client):
    assert client.head("/v1/predict").status_code == 405
    assert client.head("/nothing").status_code == 404


def test_probes_see_by_head_that_the_service_is_not_ready(open_client, make_loader):
    with open_client(make_loader(failure=OSError())) as client:
        assert client.head("/readyz").status_code == 503


def test_a_real_server_sends_no_body_and_keeps_the_connection(open_server, caplog):
    with open_server(log_level="debug") as url, caplog.at_level(logging.DEBUG):
        address = httpx.URL(url)
        connection = http.client.HTTPConnection(address.host, address.port, timeout=60)
        for path in ("/livez", "/readyz", "/metrics", "/v1/models", "/docs"):
            connection.request("HEAD", path)
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b""), path
        connection.request("GET", "/livez")
        assert connection.getresponse().read() == b'{"status":"alive"}'
        connection.close()
    assert "request method=HEAD route=/v1/models status=200" in caplog.text
