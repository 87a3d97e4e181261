"""The service as a process of its own: a real server, a real port, a real signal."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

HERE = Path(__file__).parent
SERVE = f"""
import runpy, sys, uvicorn
from pathlib import Path
from service.app import create_app
from service.settings import Settings
fake = runpy.run_path({str(HERE / "conftest.py")!r})["FakePredictor"]
app = create_app(Settings(registry=Path(sys.argv[1])), load=fake)
uvicorn.run(app, port=0, timeout_graceful_shutdown=5)
"""


@pytest.fixture
def server(registry):
    command = [sys.executable, "-c", SERVE, str(registry.folder)]
    with subprocess.Popen(
        command, cwd=HERE.parents[1], stderr=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        try:
            lines = iter(process.stderr.readline, "")
            found = (re.search(r"running on (http://127\.0\.0\.1:\d+)", line) for line in lines)
            address = next(match[1] for match in found if match)
            wait_until_ready(address)
            yield process, address
        finally:
            process.kill()


def wait_until_ready(address):
    deadline = time.monotonic() + 60
    while httpx.get(f"{address}/readyz").status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_real_server_answers_and_ends_cleanly_on_sigterm(server):
    process, address = server
    answer = httpx.post(f"{address}/v1/predict", json={"text": "four"}).json()
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=60)
    assert answer["results"][0]["labels"][0]["score"] == 4.0
    assert "Application shutdown complete" in log
    assert "Traceback" not in log
    assert process.returncode in {0, -signal.SIGTERM}  # uvicorn raises the signal again at the end


def test_a_real_server_refuses_a_chunked_body_over_the_limit(server):
    _, address = server
    chunks = (b"a" * 2**16 for _ in range(100))
    headers = {"content-type": "application/json"}
    answer = httpx.post(f"{address}/v1/predict", content=chunks, headers=headers)
    assert answer.status_code == 413
