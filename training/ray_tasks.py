"""Parts of training as tasks of Ray: blocks of labels of the sparse model, trials of experiments.

What is done lies in the run's folder as it does without Ray, and is written by this process: either
way of computing goes on where the other was stopped. Workers need this package and nothing of the
run's folder; one that dies is replaced, and does its block or trial again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from models.ray_runtime import start_ray
from training.config import SparseConfig
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
            yield (keys_of.pop(each), *ray.get(each))


def _timed(run: Callable[[Any], Result], key: Any) -> tuple[float, Result]:
    started = time.monotonic()
    found = run(key)
    return time.monotonic() - started, found
