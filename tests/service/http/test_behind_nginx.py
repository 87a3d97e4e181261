"""Behind nginx with WebSocket lines and connections that stay open, as many sites have it."""

import http.client
import shutil
import socket
import subprocess
from contextlib import suppress

import httpx
import pytest

CONFIGURATION = """
daemon off; pid {folder}/pid; error_log {folder}/error.log; worker_processes 1;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    upstream service {{ server {server}; keepalive 4; }}
    server {{
        listen 127.0.0.1:{port};
        client_max_body_size 10m;
        location = /metrics {{ return 403; }}
        location / {{
            proxy_pass http://service;
            proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection "upgrade";
        }}
    }}
}}
"""
SMUGGLED = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
PADDINGS = [0, 2**16, 2**17, 2**18, 300_000, 400_000, 500_000, 900_000]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def proxy_port(server, tmp_path):
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None:
        pytest.skip("nginx is not installed")
    port, url = free_port(), httpx.URL(server)
    text = CONFIGURATION.format(folder=tmp_path, server=f"{url.host}:{url.port}", port=port)
    (tmp_path / "nginx.conf").write_text(text)
    command = [nginx, "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None and not is_open(port):
                pass
            yield port
        finally:
            process.terminate()


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def ask(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def attack(port, protocol, padding):
    body = b"\r\n" * (padding // 2) + SMUGGLED
    head = (
        "POST /v1/predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nUpgrade: {protocol}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    address = "127.0.0.1", port
    with socket.create_connection(address, 60) as connection, suppress(ConnectionError):
        connection.sendall(head.encode() + body)
        while connection.recv(2**16):
            pass


@pytest.mark.parametrize("protocol", ["websocket", "x"])
@pytest.mark.parametrize("padding", PADDINGS)
def test_no_client_gets_the_answer_to_a_smuggled_request(proxy_port, protocol, padding):
    assert ask(proxy_port, "/metrics")[0] == 403
    attack(proxy_port, protocol, padding)
    answers = {ask(proxy_port, "/livez") for _ in range(3)}
    assert answers == {(200, b'{"status":"alive"}')}
