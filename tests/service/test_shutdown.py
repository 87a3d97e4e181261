"""How a server ends: ready no more, then deaf, then gone, and gone at once when asked twice."""

import asyncio
import queue
import signal
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest
import uvicorn

from longtail.models.errors import NotReadyError
from longtail.service.server import DrainingServer, Watchdog, serve
from longtail.service.settings import Settings
from longtail.service.versions.serving import ModelManager

SIGBREAK = 21  # what stops a service on Windows


class Bench:
    """A server that does not listen, with a clock that stands still and a watchdog that notes."""

    def __init__(self, *, is_ready=True, **settings):
        self.now = 100.0
        self.bounds = []
        self.manager = ModelManager(SimpleNamespace())
        if is_ready:
            self.manager.publish(SimpleNamespace(models={}))
        service = SimpleNamespace(
            manager=self.manager,
            settings=Settings(**settings),
            stopping=asyncio.Event(),
            redeployer=SimpleNamespace(close=int),
        )
        self.server = DrainingServer(
            uvicorn.Config(None),
            service,
            clock=lambda: self.now,
            watchdog=SimpleNamespace(end_within=lambda s, sig: self.bounds.append((s, sig))),
        )

    def signal(self, sig=signal.SIGTERM):
        self.server.handle_exit(sig, None)

    def ends_after(self, seconds):
        self.now += seconds
        return asyncio.run(self.server.on_tick(1))


def is_ready(manager):
    try:
        manager.check_ready()
    except NotReadyError:
        return False
    return True


def test_after_a_signal_it_is_not_ready_but_listens_until_the_delay_is_over(caplog):
    bench = Bench(drain_delay_s=5, shutdown_timeout_s=7)
    with caplog.at_level("INFO"):
        bench.signal()
        assert not is_ready(bench.manager)
        assert [bench.ends_after(4.9), bench.ends_after(0.0), bench.ends_after(0.2)] == [
            False, False, True,
        ]  # fmt: skip
    assert caplog.text.count("listening for") == 1
    assert bench.bounds == [(17.0, signal.SIGTERM)]
    assert not bench.server.force_exit


@pytest.mark.parametrize(
    ("sig", "waits"), [(signal.SIGINT, False), (signal.SIGTERM, True), (SIGBREAK, True)]
)
def test_only_ctrl_c_ends_it_without_the_delay(sig, waits):
    bench = Bench(drain_delay_s=5)
    bench.signal(sig)
    assert bench.ends_after(0.0) is not waits


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(second):
    bench = Bench()
    bench.signal()
    bench.signal(second)
    assert bench.ends_after(0)
    assert bench.server.force_exit
    assert bench.bounds[-1] == (1.0, second)


def test_streams_are_told_to_end_before_the_time_is_over(monkeypatch):
    bench = Bench(shutdown_timeout_s=0)

    async def shutdown(server, sockets):
        await asyncio.wait_for(server._service.stopping.wait(), 60)

    monkeypatch.setattr(uvicorn.Server, "shutdown", shutdown)
    asyncio.run(bench.server.shutdown())


def test_the_watchdog_ends_what_does_not_end_by_itself_at_the_earlier_time():
    ended = queue.SimpleQueue()
    watchdog = Watchdog(ended.put)
    watchdog.end_within(3600, signal.SIGTERM)
    watchdog.end_within(0, signal.SIGINT)
    assert ended.get(timeout=60) == signal.SIGINT


@pytest.mark.parametrize("started", [True, False])
def test_a_server_that_could_not_start_is_a_failure(monkeypatch, started):
    def run(server):
        server.started = started

    monkeypatch.setattr(DrainingServer, "run", run)
    service = SimpleNamespace(manager=ModelManager(SimpleNamespace()), settings=Settings(port=0))
    app = SimpleNamespace(state=SimpleNamespace(service=service))
    if started:
        left = []
        monkeypatch.setattr("longtail.service.server._leave", left.append)
        serve(app)
        assert left == [0]
    else:
        with pytest.raises(SystemExit) as why:
            serve(app)
        assert why.value.code == 3


COMPUTING = """
import atexit, logging, os, signal, sys, threading, torch
from pathlib import Path
from fastapi.testclient import TestClient
from longtail.service.app import create_app
from longtail.service.server import serve
from longtail.service.settings import Settings

listening, computing, ended = threading.Event(), threading.Event(), threading.Event()

class Heard(logging.Handler):
    def emit(self, record):
        if "running on" in record.getMessage():
            listening.set()

def tear_down():  # as libraries do that a load has imported
    if not ended.is_set():
        os._exit(134)

def load(bundle):
    atexit.register(tear_down)
    listening.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    computing.set()
    while not ended.is_set():
        torch.ones(64, 64) @ torch.ones(64, 64)

logging.basicConfig(level="INFO", handlers=[Heard(), logging.StreamHandler()])
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as process 1 of a container does by default
settings = Settings(registry=Path(sys.argv[1]), port=0, drain_delay_s=0, shutdown_timeout_s=1)
"""
SERVED = "serve(create_app(settings, load=load))"
EMBEDDED = """
with TestClient(create_app(settings, load=load)):
    listening.set()
    computing.wait()
later = threading.Timer(0.5, ended.set)
later.daemon = True
later.start()
"""


@pytest.mark.parametrize(
    ("prefix", "ends"),
    [([], SERVED), (["unshare", "--pid", "--fork", "--kill-child"], SERVED), ([], EMBEDDED)],
)
def test_a_process_that_ends_while_a_model_is_loaded_is_not_aborted(registry, prefix, ends):
    if prefix and subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no namespace of processes may be made here")
    words = [*prefix, sys.executable, "-c", COMPUTING + ends, str(registry.folder)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert (done.returncode, "terminate" in done.stderr) == (0, False), done.stderr


@pytest.fixture
def taken_port():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_a_taken_port_is_told_in_one_sentence_with_status_1(registry, taken_port):
    command = [sys.executable, "-m", "longtail", "serve", "--port", str(taken_port)]
    ended = subprocess.run(
        [*command, "--registry", str(registry.folder)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        f"Error: port {taken_port} of '127.0.0.1' is taken by another process, which may still "
        "be stopping; wait for it or stop it, or choose another port with --port or LONGTAIL_PORT "
        "(0 takes a free one)\n"
    )
