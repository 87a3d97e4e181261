"""Label vectors in a flat FAISS index on a GPU: a search that proposes candidates.

All indexes of a process share one `StandardGpuResources`, whose memory is bounded before the first
of them is made: by default FAISS takes 1.5 GiB of the GPU and 256 MiB of pinned memory for each.
A failed CUDA call inside FAISS ends the process (FAISS_ASSERT); only lack of memory raises.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from threading import Lock
from typing import TypeVar

import faiss
import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from longtail.models.errors import ConfigError
from longtail.models.ranking.exhaustive import row_parts
from longtail.models.ranking.gpu_thread import GpuThread

COLUMN_MULTIPLE = 8
"""Rows of so many numbers begin at multiples of 32 bytes, as the fastest kernels want."""
MAX_RESULTS = 2048
"""Of a search by FAISS (getMaxKSelection; cuVS has more)."""
TEMPORARY_BYTES = 2**28
"""Of the GPU, for all searches; a larger need is allocated when it comes."""
PINNED_BYTES = 0
"""Of main memory; only queries of 256 MiB and more would be copied through it."""

_MAX_TILE_NUMBERS = 2**25  # numbers of label vectors read back at a time: 128 MiB
_MAX_PRODUCTS = 2**26  # scores held on the GPU at a time: 256 MiB

T = TypeVar("T")


def padded_columns(
    vectors: Float32[np.ndarray, "row dim"],
) -> Float32[np.ndarray, "row stored"]:
    """Return rows followed by zeros, so that their length is a multiple of 8; in one piece."""
    num_more = -vectors.shape[1] % COLUMN_MULTIPLE
    if not num_more:
        return np.ascontiguousarray(vectors)
    stored = np.zeros((len(vectors), vectors.shape[1] + num_more), dtype=np.float32)
    stored[:, : vectors.shape[1]] = vectors
    return stored


def num_gpus() -> int:
    """Return how many GPUs both FAISS and PyTorch can use."""
    if not hasattr(faiss, "StandardGpuResources") or not torch.cuda.is_available():
        return 0
    found: int = faiss.get_num_gpus()
    return found


def free_gpu_bytes() -> int | None:
    """Return the free memory of the current GPU, in bytes; None where there is no GPU.

    What PyTorch keeps for later is given back first, and indexes that nobody holds are gone.
    """
    if not torch.cuda.is_available():
        return None
    device = torch.cuda.current_device()
    return _indexes().call(partial(_free_bytes, device)) if num_gpus() else _free_bytes(device)


class GpuIndex:
    """Proposes the labels of largest inner products, on the calling thread's current GPU."""

    def __init__(self, stored: Float32[np.ndarray, "row stored"]) -> None:
        """Copy vectors to the GPU.

        Args:
            stored: What `padded_columns` returned, of at least one row.

        Raises:
            ConfigError: They don't fit into the GPU's memory.
        """
        assert stored.shape[1] % COLUMN_MULTIPLE == 0
        self._dim = stored.shape[1]
        self._device = torch.cuda.current_device()
        self._indexes = _indexes()
        self._number = self._indexes.add(stored, self._device)
        # What is left at the end of the process is destroyed by `_Indexes.close`.
        weakref.finalize(self, self._indexes.remove, self._number).atexit = False

    def search(
        self, queries: Float32[np.ndarray, "row dim"], m: int
    ) -> tuple[Float32[np.ndarray, "row m"], Int64[np.ndarray, "row m"]]:
        """Return the m largest inner products of each query, falling, and their rows.

        Args:
            queries: Finite; without the zeros behind the vectors, or with them.
            m: Less than there are rows.

        Raises:
            ConfigError: The GPU's memory is too small for it.
        """
        asked = padded_columns(queries)
        return self._indexes.call(partial(self._search, asked, m))

    def _search(
        self, asked: Float32[np.ndarray, "row stored"], m: int
    ) -> tuple[Float32[np.ndarray, "row m"], Int64[np.ndarray, "row m"]]:
        """Search, on the thread of the GPU."""
        index = self._indexes.get(self._number)
        with _memory_errors(f"a search of {m} labels for {len(asked)} texts", self._device):
            if m <= MAX_RESULTS:
                scores, rows = index.search(asked, m)
                if (rows >= 0).all():  # it gives no row for a product that is not finite
                    return scores, rows
            parts = row_parts(len(asked), 2 * m + _tile_rows(index), _MAX_PRODUCTS)
            found = [_top_of_tiles(index, asked[part], m, self._device) for part in parts]
        return np.concatenate([x for x, _ in found]), np.concatenate([x for _, x in found])


class _Indexes:
    """All FAISS indexes on the GPUs of this process, by number, and the thread that owns them."""

    def __init__(self) -> None:
        self._thread = GpuThread()
        self._numbers = count()
        self._held: dict[int, faiss.GpuIndexFlatIP] = {}
        self._resources = self._thread.call(_bounded_resources)
        atexit.register(self.close)

    def call(self, work: Callable[[], T]) -> T:
        """Return what some work on the indexes returns."""
        return self._thread.call(work)

    def add(self, stored: Float32[np.ndarray, "row stored"], device: int) -> int:
        """Make an index of vectors; return its number."""
        number = next(self._numbers)
        self._thread.call(partial(self._make, number, stored, device))
        return number

    def remove(self, number: int) -> None:
        """Destroy an index, soon; called by whatever thread lets go of it last."""
        self._thread.put(partial(self._held.pop, number, None))

    def get(self, number: int) -> faiss.GpuIndexFlatIP:
        """Return an index, on the thread that owns it."""
        return self._held[number]

    def close(self) -> None:
        """Destroy all, and end the thread: before the interpreter ends."""
        self._thread.put(self._held.clear)
        self._thread.stop()

    def _make(self, number: int, stored: Float32[np.ndarray, "row stored"], device: int) -> None:
        config = faiss.GpuIndexFlatConfig()
        config.device = device
        torch.cuda.empty_cache()  # FAISS can't take what PyTorch keeps
        with _memory_errors(f"an index of {len(stored)} label vectors", device):
            index = faiss.GpuIndexFlatIP(self._resources, stored.shape[1], config)
            index.add(stored)
        self._held[number] = index


_LOCK = Lock()
_OF_PROCESS: list[_Indexes] = []


def _indexes() -> _Indexes:
    """Return those of this process."""
    with _LOCK:
        if not _OF_PROCESS:
            _OF_PROCESS.append(_Indexes())
        return _OF_PROCESS[0]


def _bounded_resources() -> faiss.StandardGpuResources:
    resources = faiss.StandardGpuResources()
    resources.setTempMemory(TEMPORARY_BYTES)
    resources.setPinnedMemory(PINNED_BYTES)
    return resources


def _top_of_tiles(
    index: faiss.GpuIndexFlatIP, asked: Float32[np.ndarray, "row stored"], m: int, device: int
) -> tuple[Float32[np.ndarray, "row m"], Int64[np.ndarray, "row m"]]:
    """Return the m best rows by products that PyTorch makes of parts of the index, on the GPU."""
    queries = torch.from_numpy(asked).to(_torch_device(device))
    # A process may allow TensorFloat-32, which rounds to 11 bits.
    is_exact = torch.get_float32_matmul_precision() == "highest"
    dtype = torch.float32 if is_exact else torch.float64
    size = _tile_rows(index)
    tile = torch.empty((size, index.d), device=queries.device)
    scores = queries.new_empty((len(queries), 0))
    rows = torch.empty((len(queries), 0), dtype=torch.int64, device=queries.device)
    for start in range(0, index.ntotal, size):
        part = tile[: index.ntotal - start]
        _read(index, start, part)
        best = (queries.to(dtype) @ part.to(dtype).T).float().topk(min(m, len(part)), dim=1)
        scores = torch.cat([scores, best.values], dim=1)
        rows = torch.cat([rows, start + best.indices], dim=1)
        best = scores.topk(min(m, scores.shape[1]), dim=1)
        scores, rows = best.values, rows.gather(1, best.indices)
    return scores.cpu().numpy(), rows.cpu().numpy()


def _tile_rows(index: faiss.GpuIndexFlatIP) -> int:
    return max(1, min(index.ntotal, _MAX_TILE_NUMBERS // index.d))


def _read(index: faiss.GpuIndexFlatIP, start: int, target: Float32[Tensor, "row stored"]) -> None:
    """Copy rows of an index, as it has them, to another place on its GPU."""
    # FAISS and PyTorch use streams of their own, which don't wait for each other.
    torch.cuda.synchronize(target.device)
    pointer = faiss.cast_integer_to_float_ptr(target.data_ptr())
    index.reconstruct_n_c(start, len(target), pointer)  # type: ignore[attr-defined]
    torch.cuda.synchronize(target.device)


def _torch_device(number: int) -> torch.device:
    return torch.device("cuda", number)


def _free_bytes(device: int) -> int:
    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info(device)[0])


@contextmanager
def _memory_errors(what: str, device: int) -> Iterator[None]:
    """Say what there was too little GPU memory for."""
    try:
        yield
    except MemoryError as error:  # of cuVS
        raise ConfigError(_too_small(what, device, error)) from error
    except RuntimeError as error:  # of FAISS and PyTorch
        if not any(words in str(error) for words in ("alloc fail", "out of memory")):
            raise
        raise ConfigError(_too_small(what, device, error)) from error


def _too_small(what: str, device: int, error: Exception) -> str:
    first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return (
        f"GPU {device}: its memory is too small for {what} ({_free_bytes(device) / 2**20:.0f} MiB "
        f"are free; {first_line[:200]}); unload a version, send fewer texts at a time, use a "
        "larger GPU, or the device 'cpu'"
    )
