"""The service as a process of its own: a real server, a real port, a real signal."""

import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from longtail.service.http.api_keys import make_key

HERE = Path(__file__).parent
KEY, ENTRY = make_key("operator")
PATIENCE_S = 300.0
"""Seconds to wait on a busy machine; no test waits so long on a free one."""
SERVE = f"""
import logging, runpy, sys, threading
from pathlib import Path
from longtail.service.app import create_app
from longtail.service.settings import Settings
from longtail.service import server
server._GRACE_S = 0.5
def load(bundle):
    if bundle.folder.name == "1":
        print("hanging", file=sys.stderr, flush=True)
        threading.Event().wait()
    return Hanging(bundle)
Fake = runpy.run_path({str(HERE / "conftest.py")!r})["FakePredictor"]
class Hanging(Fake):
    def read(self, texts):
        if "hang" in texts:
            print("hanging", file=sys.stderr, flush=True)
            threading.Event().wait()
        return super().read(texts)
logging.basicConfig(level="INFO", force=True)
options = dict(port=0, drain_delay_s=float(sys.argv[2]), shutdown_timeout_s=int(sys.argv[3]))
options["keep_alive_s"] = int(sys.argv[4])
options["read_timeout_s"] = float(sys.argv[5])
options["admin_keys"] = sys.argv[6]
server.serve(create_app(Settings(registry=Path(sys.argv[1]), **options), load=load))
"""


@pytest.fixture
def start(registry):
    """Start a server."""
    processes = []

    def start_one(drain_delay_s=0.0, shutdown_timeout_s=300, keep_alive_s=75, read_timeout_s=60):
        options = (
            registry.folder, drain_delay_s, shutdown_timeout_s, keep_alive_s, read_timeout_s, ENTRY,
        )  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE, *map(str, options)], cwd=HERE.parents[1],
            stderr=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        processes.append(process)
        address = read_until(process, r"running on (http://127\.0\.0\.1:\d+)")
        wait_until_ready(address)
        return process, address

    yield start_one
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def server(start):
    return start()


def read_until(process, pattern):
    """Return the first group of a pattern in the log, which is read up to there."""
    lines = iter(process.stderr.readline, "")
    return next(match[1] for line in lines if (match := re.search(pattern, line)))


def wait_until_ready(address):
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with suppress(httpx.TransportError):  # a short `read_timeout_s` may end a connection
            if httpx.get(f"{address}/readyz", timeout=PATIENCE_S).status_code == 200:
                return
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_real_server_answers_and_ends_cleanly_on_sigterm(server):
    process, address = server
    answer = httpx.post(f"{address}/v1/predict", json={"text": "four"}, timeout=PATIENCE_S).json()
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=PATIENCE_S)
    assert answer["results"][0]["labels"][0]["score"] == 4.0
    assert "Application shutdown complete" in log
    assert "Traceback" not in log
    assert process.returncode in {0, -signal.SIGTERM}  # uvicorn raises the signal again at the end


@pytest.mark.slow
def test_after_sigterm_it_is_not_ready_but_alive_and_answers(start):
    process, address = start(drain_delay_s=60)
    with httpx.Client(base_url=address, timeout=PATIENCE_S) as client:
        process.send_signal(signal.SIGTERM)
        read_until(process, "(listening for)")
        statuses = {path: client.get(path).status_code for path in ("/readyz", "/livez")}
        answer = client.post("/v1/predict", json={"text": "four"})
    assert statuses == {"/readyz": 503, "/livez": 200}
    assert answer.status_code == 200
    assert (
        httpx.get(f"{address}/livez", timeout=PATIENCE_S).status_code == 200
    )  # by a new connection too


@pytest.mark.parametrize(
    ("signals", "options"),
    [
        (2, {"drain_delay_s": 60, "shutdown_timeout_s": 60}),
        pytest.param(1, {"shutdown_timeout_s": 0}, marks=pytest.mark.slow),
    ],
)
def test_work_that_hangs_does_not_keep_it_from_ending(start, signals, options):
    process, address = start(**options)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(
            httpx.post, f"{address}/v1/predict", json={"text": "hang"}, timeout=PATIENCE_S
        )
        read_until(process, "(hanging)")
        process.send_signal(signal.SIGTERM)
        if signals == 2:
            read_until(process, "(listening for)")
            process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
        assert signals == 1 or isinstance(asked.exception(PATIENCE_S), httpx.TransportError)
    assert process.returncode in {-signal.SIGTERM, 128 + signal.SIGTERM}


@pytest.mark.slow
def test_a_change_of_versions_is_answered_and_does_not_hold_the_end(start):
    process, address = start(shutdown_timeout_s=3600)
    url, headers = f"{address}/v1/admin/models/1/load", {"Authorization": f"Bearer {KEY}"}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(httpx.post, url, headers=headers, timeout=PATIENCE_S)
        read_until(process, "(hanging)")
        process.send_signal(signal.SIGTERM)
        answer = asked.result(PATIENCE_S)
    _, log = process.communicate(timeout=PATIENCE_S)
    assert (answer.status_code, "is stopping" in answer.json()["detail"]) == (503, True)
    assert "Traceback" not in log
