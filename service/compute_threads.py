"""What is set once for the compute libraries: threads, one number for all and told; caches."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass

logger = logging.getLogger(__name__)

_SWITCH_INTERVAL_S = 0.0005
"""How long the event loop may keep the compute thread from going on; Python's default is ten times
as long, and the compute thread asks again after each of some hundred operations of a batch."""

_MOST_SHAPES = "16"
"""Shapes of matrix products that oneDNN, and PyTorch's layer over it, keep what they have made for.
By default it is 1,024 of them: with texts of all lengths half a gigabyte, for no gain in time."""


def prepare_process(num_threads: int | None) -> None:
    """Set what must be set before the compute libraries are loaded; for `cli.py`.

    What the environment says wins.

    Args:
        num_threads: Of each library; None: as they choose.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, _MOST_SHAPES)
    if num_threads is not None:
        for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):  # RAYON: the tokenisers
            os.environ.setdefault(name, str(num_threads))


@dataclass(frozen=True, slots=True)
class ComputeLibraries:
    """The libraries that compute, as they are set up; numbers are of threads."""

    torch_threads: int
    faiss_threads: int
    tokeniser_threads: int
    torch_version: str
    faiss_version: str


class ComputeSetup:
    """Sets the libraries up once, and remembers how.

    Attributes:
        libraries: How they are; None before `prepare_thread`, and where there are none.
    """

    def __init__(self, num_threads: int | None) -> None:
        """Take the threads of each library; None: as they choose."""
        self.libraries: ComputeLibraries | None = None
        self._num_threads = num_threads

    def prepare_thread(self) -> None:
        """Set them up; to be called on the thread that will compute."""
        self.libraries = limit_threads(self._num_threads)


def limit_threads(num_threads: int | None) -> ComputeLibraries:
    """Set, log and return the number of threads; to be called on the thread that will compute.

    OpenMP keeps the number for each thread that calls it, so it must be set here once more.

    Args:
        num_threads: Of PyTorch and FAISS; None: what PyTorch chooses, for both.
    """
    import faiss
    import torch

    count = num_threads or torch.get_num_threads()
    torch.set_num_threads(count)
    faiss.omp_set_num_threads(count)
    found = ComputeLibraries(
        torch_threads=torch.get_num_threads(),
        faiss_threads=faiss.omp_get_max_threads(),
        tokeniser_threads=_tokeniser_threads(),
        torch_version=torch.__version__,
        faiss_version=faiss.__version__,
    )
    logger.info(
        "compute threads: torch=%d faiss=%d tokenisers=%d",
        found.torch_threads, found.faiss_threads, found.tokeniser_threads,
    )  # fmt: skip
    return found


def _tokeniser_threads() -> int:
    """Return how many threads Rayon starts: what its variable says, or else one a core."""
    said = os.environ.get("RAYON_NUM_THREADS", "")
    return (int(said) if said.isdecimal() else 0) or os.cpu_count() or 1
