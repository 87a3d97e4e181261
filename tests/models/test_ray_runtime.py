"""Connecting to Ray: with a stand-in, and by the command where the extra `ray` is installed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from longtail.models import ray_runtime
from longtail.models.errors import ConfigError
from longtail.models.ray_runtime import start_ray

LOCAL = {"address": "local", "num_cpus": 3, "include_dashboard": False}


class FakeRay:
    """Stands in for Ray; raises `failure` where there is one."""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.failure: Exception | None = None
        self.num_cpus = 3.0

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": self.num_cpus} if self.num_cpus else {}

    def is_initialized(self) -> bool:
        return bool(self.begun)

    def init(self, *, log_to_driver: bool, configure_logging: bool, **options: Any) -> None:
        if self.failure is not None:
            raise self.failure
        self.begun.append(options)


@pytest.fixture
def fake_ray(monkeypatch):
    fake = FakeRay()
    monkeypatch.setattr(ray_runtime, "import_ray", lambda _: fake)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return fake


@pytest.fixture
def free_port() -> int:
    """Nobody listens there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


@pytest.fixture
def open_port() -> Iterator[int]:
    """Somebody listens there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("address", [None, "", "local"])
def test_a_cluster_of_this_machine_has_as_many_processors_as_asked_for(
    fake_ray, monkeypatch, address
):
    if address is not None:
        monkeypatch.setenv("RAY_ADDRESS", address)
    assert start_ray("x", 3) is fake_ray
    assert start_ray("x", 7) is fake_ray  # connected already
    assert fake_ray.begun == [LOCAL]


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://localhost:{}", "auto"])
def test_a_cluster_that_is_there_has_processors_of_its_own(
    fake_ray, monkeypatch, open_port, address
):
    monkeypatch.setenv("RAY_ADDRESS", address.format(open_port))
    start_ray("x", 3)
    assert fake_ray.begun == [{}]


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "127.0.0.1:9{}"])
def test_a_cluster_where_nobody_listens(fake_ray, monkeypatch, free_port, address):
    """Is not tried by Ray, which would do so for minutes; nor is a port above 65535."""
    address = address.format(free_port)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(
        ConfigError,
        match=rf"^x: no connection to the Ray cluster '{address}' \(\w+Error: .*\); start it, let "
        "RAY_ADDRESS name one that runs",
    ):
        start_ray("x", 3)
    assert not fake_ray.begun


@pytest.mark.parametrize(
    "failure",
    [
        ValueError("the amount of memory on this node available for tasks is less than 0"),
        FileNotFoundError(2, "No such file or directory"),
        Exception("The current node timed out during startup."),
    ],
)
def test_ray_that_does_not_start(fake_ray, failure):
    fake_ray.failure = failure
    with pytest.raises(ConfigError) as told:
        start_ray("--engine ray", 3)
    assert str(told.value).startswith(
        "--engine ray: Ray does not start on this machine with 3 processor(s) "
        f"({type(failure).__name__}: {failure}); it needs memory"
    )
    assert told.value.__cause__ is failure
