"""Classifiers of label blocks, fitted on the workers of a Ray cluster.

The files of a run are those of a run without Ray: either resumes where the other was interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.ext.ray.runtime import start_ray
from longtail.training.configuration.sections import SparseConfig
from longtail.training.sparse.svm import FittedLabels, SvmProblem


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

    def fit(self, number: int, labels: Int64[np.ndarray, label]) -> tuple[int, FittedLabels]:
        """Return the classifiers of a block of labels, and the block's number."""
        return number, self._problem.fit(labels)


def fit_on_workers(
    num_workers: int,
    features: Float32[csr_array, "document feature"],
    by_label: Float32[csr_array, "label document"],
    config: SparseConfig,
    seed: int,
    blocks: Mapping[int, Int64[np.ndarray, _]],
    progress: Callable[[int], object],
) -> Iterator[tuple[int, FittedLabels]]:
    """Yield the number and the classifiers of each block of labels, as they are done.

    Args:
        num_workers: Processes, of one thread each.
        features: Training documents; they are sent to each machine once.
        by_label: The documents of each label; the same.
        config: As for `SvmProblem`.
        seed: As there.
        blocks: Labels by number; each with a document.
        progress: Called with numbers of labels that are done.
    """
    ray = start_ray(num_workers)
    shared = [ray.put(each) for each in (features, by_label)]
    worker = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(LabelFitter)
    workers = [worker.remote(*shared, config, seed) for _ in range(min(num_workers, len(blocks)))]
    pool = ray.util.ActorPool(workers)
    for number, fitted in pool.map_unordered(
        lambda each, block: each.fit.remote(*block), blocks.items()
    ):
        yield number, fitted
        progress(len(fitted.sizes))
