"""A first hour on Windows, as far as Python on Linux can pretend it (see `like_windows.py`)."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from longtail.models.bundle.registry import Registry

pytestmark = [
    pytest.mark.slow,  # three trainings, each in a process
    pytest.mark.skipif(sys.platform != "linux", reason="/proc tells which files are open"),
]

SCRIPT = Path(__file__).with_name("like_windows.py")
ROOT = Path(__file__).parents[2]
TEXT = "imports of olive oil"


def command(*arguments):
    return [sys.executable, str(SCRIPT), *map(str, arguments)]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run `longtail` in an empty folder, or Python after "-c"; it must not fail."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run_it(*arguments, start=command):
        done = subprocess.run(start(*arguments), capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done

    return run_it


def like_linux(*arguments):
    return [sys.executable, "-m", "longtail", *map(str, arguments)]


def test_it_trains_publishes_loads_predicts_and_serves(run, tmp_path, tiny_corpus):
    train = ("train", tiny_corpus, "--without-encoder", "--work")
    told = run(*train, "work").stderr.decode()
    assert "pretended: lock memory replace" in told
    run(
        "train", tiny_corpus, "--config", "sparse", "--work", "other-work"
    )  # `current` is moved, over the file that says so
    run(*train, "plain-work", "--registry", "plain", start=like_linux)
    registry, plain = Registry("registry"), Registry("plain")
    assert registry.versions() == [1, 2] and registry.current() == 2
    assert registry.open(1).manifest.digest == plain.open(1).manifest.digest
    assert {entry["user"] for entry in registry.changes.entries()} == {"a user of Windows"}
    run("registry", "rollback")
    run("registry", "remove", 2)
    assert (registry.versions(), registry.current()) == ([1], 1)

    Path("texts.txt").write_text(f"{TEXT}\n\u014dlive \u8336\n", encoding="utf-8")
    for name, start in (("registry", command), ("plain", like_linux)):
        options = ("--registry", name, "--input", "texts.txt", "--output", f"{name}.jsonl")
        run("predict", *options, start=start)
    assert Path("registry.jsonl").read_bytes() == Path("plain.jsonl").read_bytes()
    expected = [
        x["id"] for x in json.loads(Path("plain.jsonl").read_bytes().splitlines()[0])["labels"]
    ]

    code = f"import longtail; print(*[x.id for x in longtail.load().predict({TEXT!r}).labels])"
    assert run("-c", code).stdout.decode().split()[: len(expected)] == expected
    assert served_labels(TEXT) == expected


def served_labels(text):
    """Start a service, ask it for the labels of a text, end it, and return their ids."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with Path("service.log").open("wb") as log:
        server = subprocess.Popen(
            command("serve", "--port", port, "--feedback", "feedback"), stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 60
        while ask(port, "GET", "/readyz")[0] != 200:
            assert server.poll() is None and time.monotonic() < deadline, Path(
                "service.log"
            ).read_text()
            time.sleep(0.1)
        status, answer = ask(port, "POST", "/v1/predict", {"texts": [text]})
        assert status == 200, answer
        os.kill(server.pid, signal.SIGINT)
        server.wait(30)
    finally:
        server.kill()
        server.wait()
    return [label["id"] for label in answer["results"][0]["labels"]]


def ask(port, method, path, content=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        body = None if content is None else json.dumps(content)
        connection.request(method, path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")
    except ConnectionError:
        return None, None
    finally:
        connection.close()
