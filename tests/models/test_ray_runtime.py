"""Connecting to Ray: with a stand-in, and by the command where the extra `ray` is installed."""

from typing import Any

import pytest

from longtail.models import ray_runtime
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


@pytest.mark.parametrize("address", [None, "", "local"])
def test_a_cluster_of_this_machine_has_as_many_processors_as_asked_for(
    fake_ray, monkeypatch, address
):
    if address is not None:
        monkeypatch.setenv("RAY_ADDRESS", address)
    assert start_ray("x", 3) is fake_ray
    assert start_ray("x", 7) is fake_ray  # connected already
    assert fake_ray.begun == [LOCAL]
