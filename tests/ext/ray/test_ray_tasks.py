"""Blocks of the sparse model as tasks of Ray: the folder holds what the local way writes.

Most of it with a stand-in; what needs a cluster is skipped where the extra `ray` is missing.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from typer.testing import CliRunner

import longtail
from longtail.ext.ray import fitting
from longtail.extensions import engine_named
from longtail.models.scorers.tfidf import TfidfModel
from longtail.training.configuration.sections import SparseConfig
from longtail.training.sparse import fit as sparse
from longtail.training.sparse.fit import LabelEngine, fit_on_threads, fit_sparse_model

ON_RAY = engine_named("ray")(4)
NUM_LABELS, NUM_DOCUMENTS, NUM_FEATURES = 23, 60, 12
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


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
