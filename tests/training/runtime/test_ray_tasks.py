"""Parts of training as tasks of Ray: what lies in the folders is what the local way writes.

Most of it with a stand-in; what needs a cluster is skipped where the extra `ray` is missing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from typer.testing import CliRunner

import longtail
from models.errors import ConfigError
from models.scorers.tfidf import TfidfModel
from training.configuration.sections import SparseConfig
from training.experiments.adversarial import ray as adversarial_ray
from training.experiments.adversarial.bench import AdversarialPlan
from training.experiments.runs import run_adversarial_experiment
from training.experiments.trials import Trial, read_trials, run_trials
from training.runtime import ray as ray_tasks
from training.runtime.ray import LOCAL, Engine, checked_engine
from training.sparse import fit as sparse
from training.sparse import ray as sparse_ray
from training.sparse.fit import fit_sparse_model

ON_RAY = Engine("ray", num_workers=4)
NUM_LABELS, NUM_DOCUMENTS, NUM_FEATURES = 23, 60, 12
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


class FakeRay:
    """Stands in for Ray: everything is done here, at once."""

    def __init__(self) -> None:
        self.util = SimpleNamespace(ActorPool=FakePool)
        self.num_workers = 0
        self.num_tasks = 0

    def put(self, value: Any) -> Any:
        return value

    def get(self, value: Any) -> Any:
        return value.found

    def remote(self, **_: Any) -> Callable[[Any], Any]:
        return lambda work: SimpleNamespace(remote=lambda *given: self._begin(work, given))

    def wait(self, tasks: list[Any]) -> tuple[list[Any], list[Any]]:
        return tasks[-1:], tasks[:-1]  # not in the order in which they were begun

    def _begin(self, work: Any, given: Any) -> Any:
        if isinstance(work, type):
            self.num_workers += 1
            return FakeActor(work(*given), self)
        self.num_tasks += 1
        return Task(work, given)


class FakeActor:
    def __init__(self, worker: Any, ray: FakeRay) -> None:
        self._worker = worker
        self._ray = ray

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._worker, name)
        return SimpleNamespace(remote=lambda *given: self._ray._begin(method, given))


class RemoteError(ConfigError):
    """An error of a worker, as Ray raises it: with much in its words, and its cause."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(f"a long traceback ... {cause}")
        self.cause = cause


class Task:
    def __init__(self, work: Any, given: Any) -> None:
        try:
            self._found, self._error = work(*given), None
        except ConfigError as error:
            self._error = RemoteError(error)

    @property
    def found(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._found


class FakePool:
    def __init__(self, workers: list[Any]) -> None:
        self._workers = workers

    def map_unordered(self, call: Callable[[Any, Any], Any], blocks: Any) -> Iterator[Any]:
        for number, block in reversed(list(enumerate(blocks))):
            yield call(self._workers[number % len(self._workers)], block).found


@pytest.fixture
def fake_ray(monkeypatch) -> FakeRay:
    fake = FakeRay()
    for module in (ray_tasks, sparse_ray, adversarial_ray):
        monkeypatch.setattr(module, "start_ray", lambda *_: fake)
    return fake


@pytest.fixture
def fit(monkeypatch) -> Callable[..., dict[str, bytes]]:
    """Fit a small problem; returns the files of its blocks."""
    monkeypatch.setattr(sparse, "_BLOCK_SIZE", 5)
    rng = np.random.default_rng(0)
    features = csr_array(rng.random((NUM_DOCUMENTS, NUM_FEATURES), dtype=np.float32))
    truth = csr_array((rng.random((NUM_DOCUMENTS, NUM_LABELS)) < 0.1).astype(np.float32))
    tfidf = TfidfModel([f"t{i}" for i in range(NUM_FEATURES)], np.ones(NUM_FEATURES, np.float32))

    def fit_in(folder: Path, engine: Engine, **settings: Any) -> dict[str, bytes]:
        config = SparseConfig(**settings)
        fit_sparse_model(tfidf, features, truth, config, seed=3, folder=folder, engine=engine)
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    return fit_in


def figures(trial: Trial) -> dict[str, float]:
    return {"P@1": trial.seed / 7 + len(trial.setting)}


TRIALS = [Trial("task", setting, seed) for seed in range(3) for setting in ("a", "bb")]


@pytest.mark.parametrize("exact_documents", [0, 10_000])
def test_blocks_are_those_of_the_local_way(fake_ray, fit, tmp_path, exact_documents):
    settings = {"exact_documents": exact_documents, "hard_negatives": 5, "sampled_negatives": 9}
    found = fit(tmp_path / "ray", ON_RAY, **settings)
    assert len(found) == 5
    assert found == fit(tmp_path / "here", LOCAL, **settings)
    assert fake_ray.num_workers == 4


@pytest.mark.parametrize("first", [LOCAL, ON_RAY])
def test_either_way_goes_on_where_the_other_stopped(fake_ray, fit, tmp_path, first):
    wanted = fit(tmp_path, first)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    gone = sorted(stamps)[2]
    gone.unlink()
    assert fit(tmp_path, LOCAL if first.is_ray else ON_RAY) == wanted
    assert {x for x, stamp in stamps.items() if x.stat().st_mtime_ns != stamp} == {gone}


def test_nothing_is_left_to_be_done(fake_ray, fit, tmp_path):
    assert fit(tmp_path, LOCAL) == fit(tmp_path, ON_RAY)
    assert fake_ray.num_workers == 0


def test_trials_are_those_of_the_local_way(fake_ray, tmp_path):
    run_trials(tmp_path / "ray", {"n": 1}, TRIALS[:2], figures)
    found = run_trials(tmp_path / "ray", {"n": 1}, TRIALS, figures, ON_RAY)
    assert found == run_trials(tmp_path / "here", {"n": 1}, TRIALS, figures)
    assert found == read_trials(tmp_path / "ray")
    assert fake_ray.num_tasks == 4
    content = json.loads((tmp_path / "ray" / "trials" / "task.bb.2.json").read_text())
    assert (content["setting"], content["seed"], content["seconds"]) == ("bb", 2, 0.0)


PLAN = AdversarialPlan(
    num_steps=3, num_points=2, batch_size=20, num_components=2, num_rounds=1, num_judged=20
)
METHODS = "tree,adversarial,uniform"


def learn(
    folder: Path, engine: Engine, num_seeds: int = 2, synthetic: tuple[int, ...] = (6,)
) -> Any:
    """The curves of made-up problems but for their seconds, and which trials there are."""
    paths = run_adversarial_experiment(
        None, folder, num_seeds=num_seeds, synthetic=synthetic, settings=METHODS, plan=PLAN,
        engine=engine,
    )  # fmt: skip
    results = json.loads(paths[0].read_text())["results"]
    curves = {
        (task, setting, name): figure
        for task, settings in results.items()
        for setting, figures in settings.items()
        for name, figure in figures.items()
        if "cpu_s" not in name and "wall_s" not in name
    }
    return curves, sorted(path.name for path in (folder / "trials").iterdir())


@pytest.mark.parametrize("num_workers", [1, 3])
def test_learning_curves_are_those_of_the_local_way(fake_ray, tmp_path, num_workers):
    found = learn(tmp_path / "ray", Engine("ray", num_workers))
    assert found == learn(tmp_path / "here", LOCAL)
    assert fake_ray.num_workers == num_workers
    assert fake_ray.num_tasks == len(found[1]) - 1  # p_D needs no worker


def test_learning_curves_go_on_either_way(fake_ray, tmp_path):
    learn(tmp_path, LOCAL, num_seeds=1)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "trials").iterdir()}
    found = learn(tmp_path, ON_RAY)
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in kept.items())
    assert fake_ray.num_tasks == len(found[1]) - len(kept)
    assert learn(tmp_path, LOCAL) == found


def test_a_method_that_overflows_on_a_worker_is_told_of_in_our_words(
    fake_ray, tmp_path, monkeypatch
):
    """As a candidate it is as bad as can be; where all are, the method is."""

    def overflow(*_: object) -> dict[str, float]:
        raise ConfigError("the loss is not finite")

    monkeypatch.setattr(adversarial_ray.BenchWorker, "run_candidate", overflow)
    with pytest.raises(ConfigError, match=r"synthetic-6: the loss of '\w+' overflows at every"):
        learn(tmp_path, ON_RAY)
    tasks = ray_tasks.run_tasks(overflow, [1], 1)
    with pytest.raises(ConfigError, match=r"^the loss is not finite$"):
        list(tasks)


def test_engines_that_there_are_not():
    assert checked_engine("ray", 3) == Engine("ray", 3)
    with pytest.raises(ConfigError, match="--engine: got 'spark'; wanted one of"):
        checked_engine("spark", 1)


def test_without_ray_the_error_names_the_extra(fit, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"--engine ray: .* pip install 'longtail\[ray\]'"):
        fit(tmp_path, ON_RAY)


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


@pytest.mark.ray
def test_a_cluster_runs_trials(ray_cluster, tmp_path):
    def run(trial: Trial) -> dict[str, float]:  # sent by value: workers know no tests
        return {"P@1": trial.seed / 7 + len(trial.setting)}

    found = run_trials(tmp_path / "ray", {"n": 1}, TRIALS, run, ON_RAY)
    assert found == run_trials(tmp_path / "here", {"n": 1}, TRIALS, run)


@pytest.mark.ray
def test_a_cluster_learns_the_same_curves(ray_cluster, tmp_path):
    """Of two problems, whose workers follow on each other and have read-only arrays."""
    given = {"num_seeds": 1, "synthetic": (4, 6)}
    found = learn(tmp_path / "ray", Engine("ray", 2), **given)
    assert found == learn(tmp_path / "here", LOCAL, **given)


@pytest.mark.ray
def test_errors_of_a_cluster_are_in_our_words(ray_cluster):
    def overflow(_: object) -> dict[str, float]:
        raise ConfigError("the loss is not finite")

    with pytest.raises(ConfigError, match=r"^the loss is not finite$"):
        list(ray_tasks.run_tasks(overflow, [1], 1))
