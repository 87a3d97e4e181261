"""Ray: `longtail train --engine ray`; `serve` is for `serve run`."""

from __future__ import annotations

from functools import partial
from typing import Any

from longtail.extensions import Extension


def _fits_labels(num_workers: int) -> Any:
    from longtail.ext.ray.fitting import fit_on_workers

    return partial(fit_on_workers, num_workers)


EXTENSION = Extension("ray", engine=_fits_labels)
