"""Settings of the experiment on the workers of a Ray cluster."""

from __future__ import annotations

from typing import Any

from models.ray_runtime import start_ray
from training.experiments.adversarial.bench import Bench
from training.experiments.adversarial.tuning import Candidate
from training.experiments.trials import Values
from training.runtime.ray import ASKED_BY, result_of


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
        values: Values = result_of(self._ray, task)
        return values


def benches_on_ray(bench: Bench, num_workers: int) -> list[BenchOnRay]:
    """Return workers of one thread each that run the trials of a task.

    Args:
        bench: With the task, which is sent to each machine once.
        num_workers: How many; at least 1.

    Raises:
        ConfigError: Ray is not installed, or its cluster can't be reached.
    """
    ray = start_ray(ASKED_BY, num_workers)
    shared = ray.put(bench)
    worker = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(BenchWorker)
    return [BenchOnRay(ray, worker.remote(shared), shared) for _ in range(num_workers)]
