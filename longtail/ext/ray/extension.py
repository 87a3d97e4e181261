"""Ray: `--engine ray` of `longtail train` and `longtail predict`; `serve` is for `serve run`."""

from __future__ import annotations

from functools import partial
from typing import Any

from longtail.extensions import ComputeEngine, Extension


def _fits_labels(num_workers: int) -> Any:
    from longtail.ext.ray.fitting import fit_on_workers

    return partial(fit_on_workers, num_workers)


def _answers_parts(num_workers: int, num_threads: int, device: str) -> Any:
    from longtail.ext.ray.answering import answer_on_workers

    return partial(answer_on_workers, num_workers, num_threads, device)


EXTENSION = Extension("ray", engine=ComputeEngine("ray", _fits_labels, _answers_parts))
