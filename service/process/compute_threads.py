"""Set-up for computing: numbers of threads (ours and the libraries'), their priorities, and memory.

Several compute threads with few threads of the libraries each answer more texts, and sooner, than
one that has all: the work of a small encoder on one text is too little to be shared out, and each
of some hundred steps waits for the slowest thread.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import sys
import threading
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from longtail.models.extras import is_installed, require
from longtail.models.platform import usable_cores
from longtail.models.processor import sees_gpu

_NICENESS_OF_LOADS = 5
"""Enough to go behind requests; a thread that gets no processor at all while it holds Python's
lock would make them wait for it."""


def lower_priority(niceness: int = _NICENESS_OF_LOADS) -> None:
    """Give the calling thread, and threads that it starts, a lower priority than the others."""
    if sys.platform == "linux":  # elsewhere this is a property of the whole process
        thread = threading.get_native_id()
        own = os.getpriority(os.PRIO_PROCESS, os.getpid())  # an operator may have lowered it
        os.setpriority(os.PRIO_PROCESS, thread, min(19, own + niceness))


_MEMINFO = Path("/proc/meminfo")
_CGROUPS = (
    # Of version 2: limit, use, statistics, and where the latter have the cache that can go at once.
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat",
     "total_inactive_file"),
)  # fmt: skip


def available_bytes(cgroup: Path = Path("/sys/fs/cgroup"), meminfo: Path = _MEMINFO) -> int | None:
    """Return the bytes that can be taken before somebody is killed; None where nobody says.

    The smaller of what the machine has and of what the container is allowed.
    """
    found = [_of_machine(meminfo), *(_of_container(cgroup, *names) for names in _CGROUPS)]
    return min((number for number in found if number is not None), default=None)


def available_gpu_bytes(device: str | None = None) -> int | None:
    """Return the free bytes of the GPU that models compute on; None where they compute on none.

    Args:
        device: "cpu" or "cuda"; None: a GPU if there is one.
    """
    if device == "cpu" or not sees_gpu():
        return None
    from longtail.models.ranking.device_rows import free_gpu_bytes

    return free_gpu_bytes()


def return_free_memory() -> None:
    """Let the C library return memory that was freed to the system, where it is glibc."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _of_machine(meminfo: Path) -> int | None:
    kibibytes = _field(meminfo, "MemAvailable:")
    return None if kibibytes is None else kibibytes * 1024


def _of_container(cgroup: Path, limit: str, use: str, stat: str, cache: str) -> int | None:
    try:
        most, used = (int((cgroup / name).read_text()) for name in (limit, use))
    except (OSError, ValueError):  # there is none, or its limit is "max"
        return None
    return most - used + (_field(cgroup / stat, cache) or 0)


def _field(path: Path, name: str) -> int | None:
    """Return the number behind a name in a file of names and numbers."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.split()[:1] == [name]), None)


_YOUNG_COLLECTIONS = 200
"""Collections of younger objects for one of all; Python does a full one after every tenth. Under
ten times the load that can be borne, it is one in some fifty seconds."""


def collect_rarely() -> None:
    """Make full runs of the cyclic garbage collector rare: each stops all threads for 0.4 s."""
    youngest, young, _ = gc.get_threshold()
    gc.set_threshold(youngest, young, _YOUNG_COLLECTIONS)


def collect_cycles() -> None:
    """Free all reference cycles now, and leave what remains out of later collections."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


logger = logging.getLogger(__name__)

_SWITCH_INTERVAL_S = 0.0005
"""How long the event loop may keep a compute thread from going on; Python's default is ten times as
long, and a compute thread asks again some twenty times a batch."""

_MAX_SHAPES = "128"
"""Shapes of matrix products that oneDNN, and PyTorch's layer over it, keep what they have made for.
By default it is 1,024 of them: with texts of all lengths, half a gigabyte. An encoder of BERT's
architecture needs about a hundred (see `longtail.models.encoders.cpu.unpadded`)."""


_OFF = frozenset({"off", "false", "f", "no", "n", "0"})
"""What turns a variable of the tokenisers off."""
_MAX_WORKERS = 4
"""Where nobody says how many: beyond it, a batch gets more threads instead."""


def prepare_process(num_threads: int | None) -> None:
    """Set what must be set before the compute libraries are loaded; for `cli.py`.

    What the environment says wins.

    Args:
        num_threads: Threads of each library; None: as they choose.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    collect_rarely()
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, _MAX_SHAPES)
    if num_threads is not None:
        for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):  # RAYON: the tokenisers
            os.environ.setdefault(name, str(num_threads))


@dataclass(frozen=True, slots=True)
class ComputeLibraries:
    """The libraries that compute, as they are set up; numbers are of threads.

    What is None is not installed.
    """

    torch_threads: int
    faiss_threads: int | None
    tokeniser_threads: int
    torch_version: str
    faiss_version: str | None


class ComputeSetup:
    """Sets the libraries up on each compute thread, and remembers how.

    Attributes:
        num_workers: Compute threads.
        libraries: How they are; None before a model needed them.
        has_libraries: Whether a model needs them. As long as none does, one thread computes: what
            needs no encoder is mostly Python, of which two threads do no more than one, and in
            smaller batches.
    """

    def __init__(
        self,
        num_threads: int | None,
        num_workers: int | None = None,
        device: str | None = None,
        niceness: int = 0,
    ) -> None:
        """Take the requested numbers of threads.

        Args:
            num_threads: Threads of each library, in all compute threads together; None: as they
                choose.
            num_workers: Compute threads; None: one for each of these threads, up to 4.
            device: "cpu" or "cuda", for which there is one; None: a GPU if PyTorch sees one.
            niceness: Niceness of the compute threads, beyond that of the process.
        """
        self._niceness = niceness
        self.libraries: ComputeLibraries | None = None
        self.has_libraries = False
        self._of_thread = threading.local()
        self._num_threads = num_threads
        self._device = device
        expected = num_workers or min(num_threads or _num_processors(), _MAX_WORKERS)
        self.num_workers = 1 if device == "cuda" else expected

    def prepare_thread(self, least_niceness: int = 0) -> bool:
        """Set up all but the libraries; to be called on each thread that will compute.

        Returns:
            Whether several threads may compute.
        """
        if self._device == "cpu" or not sees_gpu():
            os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads spin, too
        elif self._device is None:
            self.num_workers = 1
        lower_priority(max(least_niceness, self._niceness))
        limit_blas()
        return self.num_workers > 1

    def prepare_trial(self) -> None:
        """Set up all on a thread that tries a model before that answers."""
        self.prepare_thread(_NICENESS_OF_LOADS)
        self.prepare_work()

    def use_libraries(self) -> None:
        """Take note that a model needs PyTorch; one without an encoder does not."""
        require("cpu", "a model with an encoder")
        self.has_libraries = True

    def prepare_work(self) -> None:
        """Set the libraries up, once a model needs them; to be called before each piece of work."""
        if self.has_libraries and not hasattr(self._of_thread, "is_prepared"):
            # What one thread was given is what PyTorch tells the next one that there is.
            before = self.libraries
            total = before.torch_threads * self.num_workers if before else self._num_threads
            self.libraries = limit_threads(total, self.num_workers)
            self._of_thread.is_prepared = True


def limit_blas() -> None:
    """Let NumPy use one thread: its other threads spin for long after each product."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1, "blas")


def limit_threads(num_threads: int | None, num_workers: int = 1) -> ComputeLibraries:
    """Set, log and return the number of threads; to be called on each thread that will compute.

    OpenMP keeps the number for each thread that calls it, so it must be set here once more.

    Args:
        num_threads: Threads of PyTorch, and of FAISS where it is installed, in all compute threads
            together; None: what PyTorch chooses, for both.
        num_workers: Compute threads.
    """
    import torch

    faiss = import_module("faiss") if is_installed("faiss") else None

    chosen = torch.get_num_threads()  # asked in any case: PyTorch sets a thread up when first asked
    count = max(1, (num_threads or chosen) // num_workers)
    torch.set_num_threads(count)
    if faiss is not None:
        faiss.omp_set_num_threads(count)
    limit_blas()
    found = ComputeLibraries(
        torch_threads=torch.get_num_threads(),
        faiss_threads=faiss.omp_get_max_threads() if faiss else None,
        tokeniser_threads=_tokeniser_threads(),
        torch_version=torch.__version__,
        faiss_version=faiss.__version__ if faiss else None,
    )
    logger.info(
        "compute threads: torch=%d faiss=%s tokenisers=%d",
        found.torch_threads, found.faiss_threads, found.tokeniser_threads,
    )  # fmt: skip
    return found


def _num_processors() -> int:
    """Return about how many threads the libraries choose: what OpenMP is set to, or one a core."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    return int(said) if said.isdecimal() and int(said) else usable_cores()


def _tokeniser_threads() -> int:
    """Return how many threads read texts: one, or what Rayon's variable says, or one a core."""
    if os.environ.get("TOKENIZERS_PARALLELISM", "").lower() in _OFF:
        return 1
    said = os.environ.get("RAYON_NUM_THREADS", "")
    return (int(said) if said.isdecimal() else 0) or os.cpu_count() or 1
