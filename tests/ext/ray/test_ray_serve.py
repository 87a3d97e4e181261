"""The service on Ray Serve. What needs a cluster is skipped where the extra `ray` is missing."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest

from longtail.ext.ray.serve import Arguments, build, create_replica, settings_of
from longtail.models.bundle.registry import Registry
from longtail.models.edit.add_labels import add_labels
from longtail.models.errors import NotReadyError
from longtail.models.labels.catalogue import Label

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@pytest.fixture
def two_versions(trained, tmp_path):
    """A trained model, and the same with a label more; the first is current."""
    registry = Registry(tmp_path / "two")
    bundle = trained.bundle
    registry.publish(add_labels(bundle, [Label("first", "first")]))
    registry.publish(add_labels(bundle, [Label("second", "second")]), activate=False)
    return registry


def test_a_replica_serves_one_version_whatever_becomes_current(two_versions):
    settings = settings_of(Arguments(registry=two_versions.folder, num_cpus=2))
    assert (settings.versions, settings.watch_interval_s) == ((1,), 0)
    assert (settings.num_threads, settings.device) == (2, "cpu")
    more = Arguments(registry=two_versions.folder, version=2, num_gpus=0.5, settings={"max_k": 7})
    assert (settings_of(more).versions, settings_of(more).device) == ((2,), "cuda")
    assert settings_of(more).max_k == 7


def test_a_replica_has_started_when_its_model_answers(two_versions):
    app = create_replica(settings_of(Arguments(registry=two_versions.folder)))

    async def start() -> bool:
        async with app.router.lifespan_context(app):
            app.state.service.manager.check_ready()
            return True

    assert asyncio.run(start())


def test_a_replica_whose_model_is_damaged_does_not_start(two_versions):
    (two_versions.folder / "1" / "sparse.json").write_text("{}")
    app = create_replica(settings_of(Arguments(registry=two_versions.folder)))

    async def start() -> None:
        async with app.router.lifespan_context(app):
            pass

    with pytest.raises(NotReadyError, match=r"sparse\.json"):
        asyncio.run(start())


@pytest.fixture
def fake_serve(monkeypatch):
    """Stands in for Ray Serve; returns what a deployment is made of."""
    made: dict[str, Any] = {}

    def deployment(ingress: Any, **options: Any) -> Any:
        made.update(options, app=ingress)
        return SimpleNamespace(bind=lambda: "application")

    ray = ModuleType("ray")
    ray.serve = ModuleType("ray.serve")
    ray.serve.ingress = lambda make_app: make_app
    ray.serve.deployment = deployment
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.serve", ray.serve)
    return made


def test_a_deployment_is_scaled_by_what_waits(fake_serve, two_versions):
    given = {"registry": str(two_versions.folder), "version": 2, "min_replicas": "2"}
    assert build(given | {"target_ongoing_requests": 5, "num_cpus": "3"}) == "application"
    assert fake_serve["autoscaling_config"] == {
        "min_replicas": 2, "max_replicas": 2, "target_ongoing_requests": 5
    }  # fmt: skip
    assert fake_serve["ray_actor_options"] == {"num_cpus": 3, "num_gpus": 0}
    assert fake_serve["graceful_shutdown_timeout_s"] > 30
    assert fake_serve["app"].state.service.settings.versions == (2,)


class Load:
    """Asks again and again, on some threads, and counts who answers."""

    def __init__(self, url: str, num_threads: int = 4) -> None:
        self.answers: Counter[Any] = Counter()
        self._url = url
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(num_threads)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60) as client:
            while not self._stop.is_set():
                try:
                    answer = client.post("/v1/predict", json={"text": "olive oil", "k": 2})
                    found = answer.json()["model"]["version"] if answer.is_success else answer.text
                except httpx.HTTPError as error:
                    found = repr(error)
                self.answers[found] += 1

    def wait_for(self, version: int, count: int) -> None:
        """Wait until a version has answered so often more."""
        wanted, deadline = self.answers[version] + count, time.monotonic() + 240
        while self.answers[version] < wanted:
            assert time.monotonic() < deadline, self.answers
            time.sleep(0.05)


@pytest.fixture
def serve(ray_cluster, monkeypatch):
    """Serve, and the URL of its proxy."""
    from ray import serve

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port, "location": "HeadOnly"})
    yield serve, f"http://127.0.0.1:{port}"
    serve.shutdown()


@pytest.mark.ray
def test_a_new_version_is_deployed_under_load_without_a_failed_request(serve, two_versions):
    deploy, url = serve
    given = {"registry": Path(two_versions.folder), "min_replicas": 1, "max_replicas": 2}
    deploy.run(build(given), name="longtail")
    assert httpx.get(f"{url}/readyz", timeout=60).status_code == 200
    with Load(url) as load:
        load.wait_for(version=1, count=20)
        deploy.run(build(given | {"version": 2}), name="longtail")
        load.wait_for(version=2, count=20)
    assert set(load.answers) == {1, 2}
    problem = httpx.post(f"{url}/v1/predict", json={}, timeout=60)
    assert problem.headers["content-type"] == "application/problem+json"
