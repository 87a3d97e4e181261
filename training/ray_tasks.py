"""Parts of training as tasks of Ray: blocks of labels of the sparse model, trials of experiments.

What is done lies in the run's folder as it does without Ray: either way of computing goes on where
the other was stopped. A worker that dies is replaced, and does its block or trial again. This
process writes what they return, so that they need nothing of the folder; but for the runs of
`training.ablations`, which write what they have made themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from models.errors import LongtailError
from models.ray_runtime import start_ray
from training.adversarial import Bench
from training.adversarial_tuning import Candidate
from training.config import SparseConfig
from training.experiments import Values
from training.svm import FittedLabels, SvmProblem

_ASKED_BY = "--engine ray"
Key = TypeVar("Key")
Result = TypeVar("Result")


class LabelFitter:
    """A worker: the problem that all labels share, and one thread that fits some of them."""

    def __init__(
        self,
        features: Float32[csr_array, "document feature"],
        by_label: Float32[csr_array, "label document"],
        config: SparseConfig,
        seed: int,
    ) -> None:
        """Index the documents; see `SvmProblem`."""
        self._problem = SvmProblem(features, by_label, config, seed=seed)

    def fit(self, number: int, labels: Int64[np.ndarray, "label"]) -> tuple[int, FittedLabels]:
        """Return the classifiers of a block of labels, and the block's number."""
        return number, self._problem.fit(labels)


def fit_blocks(
    features: Float32[csr_array, "document feature"],
    by_label: Float32[csr_array, "label document"],
    config: SparseConfig,
    seed: int,
    blocks: Mapping[int, Int64[np.ndarray, "_"]],
    num_workers: int,
) -> Iterator[tuple[int, FittedLabels]]:
    """Yield the number and the classifiers of each block of labels, as they are done.

    Args:
        features: Training documents; they are sent to each machine once.
        by_label: The documents of each label; the same.
        config: As for `SvmProblem`.
        seed: As there.
        blocks: Labels by number; each with a document.
        num_workers: Processes, of one thread each.

    Raises:
        ConfigError: Ray is not installed, or its cluster can't be reached.
    """
    ray = start_ray(_ASKED_BY, num_workers)
    shared = [ray.put(each) for each in (features, by_label)]
    worker = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(LabelFitter)
    workers = [worker.remote(*shared, config, seed) for _ in range(min(num_workers, len(blocks)))]
    pool = ray.util.ActorPool(workers)
    yield from pool.map_unordered(lambda each, block: each.fit.remote(*block), blocks.items())


def run_tasks(
    run: Callable[[Key], Result], keys: Sequence[Key], num_workers: int
) -> Iterator[tuple[Key, float, Result]]:
    """Yield what a function returns for each key, and its seconds, as they are done.

    Args:
        run: With all that it needs, which is sent to each machine once.
        keys: What to call it with.
        num_workers: Tasks at a time on a machine that is no cluster.

    Raises:
        ConfigError: Ray is not installed, or its cluster can't be reached.
    """
    ray = start_ray(_ASKED_BY, num_workers)
    task = ray.remote(num_cpus=1, max_retries=-1)(_timed)
    shared = ray.put(run)
    keys_of = {task.remote(shared, key): key for key in keys}
    while keys_of:
        done, _ = ray.wait(list(keys_of))
        for each in done:
            yield (keys_of.pop(each), *_result(ray, each))


class BenchWorker:
    """A worker: one thread that runs trials of a task; it fits a tree of its own."""

    def __init__(self, bench: Bench) -> None:
        """Take the task."""
        self._bench = bench

    def run_tree(self) -> Values:
        """Return what the tree alone is worth, and what it took."""
        return self._bench.run_tree()

    def run_candidate(
        self, candidate: Candidate, seed: int, tree_regulariser: float | None
    ) -> Values:
        """Return the curve of a candidate, with a tree of this lambda_n where it needs one."""
        self._bench.tree_regulariser = tree_regulariser
        return self._bench.run_candidate(candidate, seed)


class BenchOnRay:
    """Stands for the bench of a worker; one thread at a time.

    Attributes:
        tree_regulariser: lambda_n, once it is known.
    """

    def __init__(self, ray: Any, worker: Any, shared: Any) -> None:
        self._ray = ray
        self._worker = worker
        self._shared = shared  # a worker that is replaced reads it again
        self.tree_regulariser: float | None = None

    def run_tree(self) -> Values:
        """Return what the tree alone is worth, and what it took."""
        return self._values(self._worker.run_tree.remote())

    def run_candidate(self, candidate: Candidate, seed: int) -> Values:
        """Return the curve of a candidate.

        Raises:
            ConfigError: As `Bench.run_candidate` does.
        """
        return self._values(
            self._worker.run_candidate.remote(candidate, seed, self.tree_regulariser)
        )

    def _values(self, task: Any) -> Values:
        values: Values = _result(self._ray, task)
        return values


def benches_on_ray(bench: Bench, num_workers: int) -> list[BenchOnRay]:
    """Return workers of one thread each that run the trials of a task.

    Args:
        bench: With the task, which is sent to each machine once.
        num_workers: How many; at least 1.

    Raises:
        ConfigError: Ray is not installed, or its cluster can't be reached.
    """
    ray = start_ray(_ASKED_BY, num_workers)
    shared = ray.put(bench)
    worker = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(BenchWorker)
    return [BenchOnRay(ray, worker.remote(shared), shared) for _ in range(num_workers)]


def _result(ray: Any, task: Any) -> Any:
    """Return what a task has found.

    Raises:
        LongtailError: The task raised it; without the traceback that Ray writes into its words.
    """  # noqa: DOC501
    try:
        return ray.get(task)
    except LongtailError as error:
        raise getattr(error, "cause", error) from None


def _timed(run: Callable[[Any], Result], key: Any) -> tuple[float, Result]:
    started = time.monotonic()
    found = run(key)
    return time.monotonic() - started, found
