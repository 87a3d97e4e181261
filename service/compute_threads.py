"""How many threads compute: one number for PyTorch, FAISS and the tokenisers, set once and told."""

from __future__ import annotations

import logging
import os
import sys

logger = logging.getLogger(__name__)

_SWITCH_INTERVAL_S = 0.0005
"""How long the event loop may keep the compute thread from going on; Python's default is ten times
as long, and the compute thread asks again after each of some hundred operations of a batch."""


def prepare_process(num_threads: int | None) -> None:
    """Set what must be set before the compute libraries are loaded; for `cli.py`.

    Args:
        num_threads: Of each library; None: as they choose. What the environment says wins.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    if num_threads is not None:
        for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):  # RAYON: the tokenisers
            os.environ.setdefault(name, str(num_threads))


def limit_threads(num_threads: int | None) -> None:
    """Set and log the number of threads; to be called on the thread that will compute.

    OpenMP keeps the number for each thread that calls it, so it must be set here once more.

    Args:
        num_threads: Of PyTorch and FAISS; None: what PyTorch chooses, for both.
    """
    import faiss
    import torch

    count = num_threads or torch.get_num_threads()
    torch.set_num_threads(count)
    faiss.omp_set_num_threads(count)
    logger.info(
        "compute threads: torch=%d faiss=%d tokenisers=%s",
        torch.get_num_threads(),
        faiss.omp_get_max_threads(),
        os.environ.get("RAYON_NUM_THREADS", "one a core"),
    )
