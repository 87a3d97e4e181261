"""The service on Ray Serve. What needs a cluster is skipped where the extra `ray` is missing."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from scipy.sparse import csr_array
from typer.testing import CliRunner

import longtail
from longtail.ext.ray import fitting
from longtail.ext.ray.serve import Arguments, build, create_replica, settings_of
from longtail.extensions import engine_named
from longtail.models.bundle.registry import Registry
from longtail.models.edit.add_labels import add_labels
from longtail.models.errors import NotReadyError
from longtail.models.labels.catalogue import Label
from longtail.models.scorers.tfidf import TfidfModel
from longtail.training.configuration.sections import SparseConfig
from longtail.training.sparse import fit as sparse
from longtail.training.sparse.fit import LabelEngine, fit_on_threads, fit_sparse_model

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


ON_RAY = engine_named("ray")(4)
NUM_LABELS, NUM_DOCUMENTS, NUM_FEATURES = 23, 60, 12


class FakeRay:
    """Stands in for Ray: everything is done here, at once."""

    def __init__(self) -> None:
        self.util = SimpleNamespace(ActorPool=FakePool)
        self.num_workers = 0

    def put(self, value: Any) -> Any:
        return value

    def get(self, value: Any) -> Any:
        return value.found

    def remote(self, **_: Any) -> Callable[[Any], Any]:
        return lambda work: SimpleNamespace(remote=lambda *given: self._begin(work, given))

    def _begin(self, work: Any, given: Any) -> Any:
        if isinstance(work, type):
            self.num_workers += 1
            return FakeActor(work(*given), self)
        return Task(work, given)


class FakeActor:
    def __init__(self, worker: Any, ray: FakeRay) -> None:
        self._worker = worker
        self._ray = ray

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._worker, name)
        return SimpleNamespace(remote=lambda *given: self._ray._begin(method, given))


class Task:
    def __init__(self, work: Any, given: Any) -> None:
        self.found = work(*given)


class FakePool:
    def __init__(self, workers: list[Any]) -> None:
        self._workers = workers

    def map_unordered(self, call: Callable[[Any, Any], Any], blocks: Any) -> Iterator[Any]:
        for number, block in reversed(list(enumerate(blocks))):
            yield call(self._workers[number % len(self._workers)], block).found


@pytest.fixture
def fake_ray(monkeypatch):
    fake = FakeRay()
    monkeypatch.setattr(fitting, "start_ray", lambda *_: fake)
    return fake


@pytest.fixture
def fit(monkeypatch):
    """Fit a small problem; returns the files of its blocks."""
    monkeypatch.setattr(sparse, "_BLOCK_SIZE", 5)
    rng = np.random.default_rng(0)
    features = csr_array(rng.random((NUM_DOCUMENTS, NUM_FEATURES), dtype=np.float32))
    truth = csr_array((rng.random((NUM_DOCUMENTS, NUM_LABELS)) < 0.1).astype(np.float32))
    tfidf = TfidfModel([f"t{i}" for i in range(NUM_FEATURES)], np.ones(NUM_FEATURES, np.float32))

    def fit_in(folder: Path, engine: LabelEngine, **settings: Any) -> dict[str, bytes]:
        config = SparseConfig(**settings)
        fit_sparse_model(tfidf, features, truth, config, seed=3, folder=folder, engine=engine)
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    return fit_in


@pytest.mark.parametrize("exact_documents", [0, 10_000])
def test_blocks_are_those_of_the_local_way(fake_ray, fit, tmp_path, exact_documents):
    settings = {"exact_documents": exact_documents, "hard_negatives": 5, "sampled_negatives": 9}
    found = fit(tmp_path / "ray", ON_RAY, **settings)
    assert len(found) == 5
    assert found == fit(tmp_path / "here", fit_on_threads, **settings)
    assert fake_ray.num_workers == 4


@pytest.mark.parametrize("first", [fit_on_threads, ON_RAY])
def test_either_way_goes_on_where_the_other_stopped(fake_ray, fit, tmp_path, first):
    wanted = fit(tmp_path, first)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    gone = sorted(stamps)[2]
    gone.unlink()
    assert fit(tmp_path, fit_on_threads if first is ON_RAY else ON_RAY) == wanted
    assert {x for x, stamp in stamps.items() if x.stat().st_mtime_ns != stamp} == {gone}


@pytest.mark.ray
def test_a_cluster_trains_the_same_bundle(
    ray_cluster, trained_sparse, tiny_corpus, sparse_config, tmp_path
):
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps(sparse_config.model_dump(mode="json", exclude_unset=True)))
    given = ["train", str(tiny_corpus), "--config", str(config), "--work", str(tmp_path / "work")]
    given += ["--registry", str(tmp_path / "registry"), "--engine", "ray", "--workers", "4"]
    ran = CliRunner().invoke(longtail.app, given)
    assert ran.exit_code == 0, ran.output
    assert trained_sparse.bundle.manifest.digest in ran.output
