"""`longtail serve` as a process of its own, for benchmarks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Served:
    """A service that is ready."""

    port: int
    pid: int

    def memory_mib(self) -> float:
        """Return its resident memory."""
        return self._of_status("VmRSS")

    def _of_status(self, name: str) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        (line,) = [line for line in status.splitlines() if line.startswith(name)]
        return int(line.split()[1]) / 1024


@contextmanager
def served(registry: Path, *options: str, timeout_s: float = 120) -> Iterator[Served]:
    """Start the service on a free port, wait until it is ready, and end it at last.

    Yields:
        What to talk to.
    """
    port = free_port()
    command = [sys.executable, "-m", "longtail", "serve", "--log-level", "warning"]
    command += ["--drain-delay-s", "0"]
    process = subprocess.Popen(
        [*command, "--registry", str(registry), "--port", str(port), *options], env=os.environ
    )
    try:
        wait_until_ready(process, port, timeout_s)
        yield Served(port, process.pid)
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    """Return a TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def wait_until_ready(process: subprocess.Popen[Any], port: int, timeout_s: float) -> None:
    """Wait until the service of a process answers."""
    deadline = time.monotonic() + timeout_s
    while not _is_ready(port):
        assert process.poll() is None and time.monotonic() < deadline, "it did not start"
        time.sleep(0.1)


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return json.load(answer)["status"] == "ready"
    except OSError:
        return False
