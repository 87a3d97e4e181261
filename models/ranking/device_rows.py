"""Label vectors on one device, and the two ways to propose rows: PyTorch's product, or FAISS.

Both read the same rows where they lie; whichever is faster on them is taken, as both are exact once
float64 has decided. FAISS's search is that of its flat index, by one thread at a time: its GPU
classes are not safe for concurrent use, and a failed CUDA call inside FAISS ends the process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from longtail.models.errors import ConfigError
from longtail.models.extras import has_faiss
from longtail.models.names import IndexName
from longtail.models.processor import sees_gpu
from longtail.models.ranking.certified import largest
from longtail.models.ranking.device_products import products_on_device
from longtail.models.ranking.inner_products import products_with_rows
from longtail.models.ranking.top_k import IndexChoice
from longtail.models.ranking.whole_products import WholeRows, pays

COLUMN_MULTIPLE = 8
"""On a GPU rows begin at multiples of 32 bytes, as the fastest kernels want."""
MAX_FAISS_RESULTS = 2048
"""Of a search on a GPU (getMaxKSelection); PyTorch finds more."""
_MAX_PRODUCTS = {"cpu": 2**24, "cuda": 2**26}
"""float32 products held at a time: 64 MiB in main memory, 256 MiB on a GPU."""
_LEAST_TIMED = 2**20
"""Numbers of an index below which either search takes microseconds: PyTorch, without a try."""
_TIMED_BATCHES = (1, 64)
_ROUNDS = 3
_FAISS_LOCK = Lock()

logger = logging.getLogger(__name__)
Found = tuple[Float32[Tensor, "query m"], Int64[Tensor, "query m"]]


class DeviceRows:
    """Vectors in the memory of one device, with zeros behind each where that is a GPU.

    Attributes:
        rows: The vectors.
        device: Where they lie.
        dim: Their length, zeros not counted.
        choice: What searches them.
        whole: They in whole numbers, which propose rows on a CPU; None: float32 does.
    """

    def __init__(
        self,
        vectors: Float32[np.ndarray, "row dim"],
        norms: Float64[np.ndarray, row],
        device: str,
        index: IndexName,
    ) -> None:
        """Copy vectors to a device, and choose what searches them.

        Args:
            vectors: Finite; on a CPU they are not copied.
            norms: Their lengths.
            device: "cpu" or "cuda" (the current GPU of PyTorch).
            index: "faiss", "torch", or "auto" for the faster one.

        Raises:
            ConfigError: FAISS is asked for and can't be had, or the GPU's memory is too small.
        """
        self.dim: int = vectors.shape[1]
        rows = torch.from_numpy(np.ascontiguousarray(vectors))
        with memory_errors(f"an index of {len(vectors)} label vectors"):
            self.rows = self._padded(rows.to(device))
            self.device = self.rows.device
            whole_pays = has_kernels(self.device) and index != "faiss" and pays(vectors)
            self.whole = WholeRows(vectors, float(norms.max())) if whole_pays else None
            self.choice = self._choose(index)
        if self.choice.index == "faiss":
            self.whole = None

    def on_device(self, queries: Float32[np.ndarray, "query dim"]) -> Float32[Tensor, "query row"]:
        """Return queries on the device, as long as the rows there."""
        return self._padded(torch.from_numpy(np.ascontiguousarray(queries)).to(self.device))

    def products(self, queries: Float32[Tensor, "query stored"]) -> Float32[Tensor, "query row"]:
        """Return the inner products with all rows, in float32."""
        if has_kernels(self.device):  # NumPy's product is faster there
            return torch.from_numpy(queries.numpy() @ self.rows.numpy().T)
        return queries @ self.rows.T

    def exact(
        self, queries: Float32[Tensor, "query stored"], rows: Int64[Tensor, "query m"]
    ) -> Float32[Tensor, "query m"]:
        """Return the inner products with given rows, in float64, rounded once."""
        if not has_kernels(self.device):
            return products_on_device(queries, self.rows, rows, self.dim)
        arrays = (queries.numpy(), self.rows.numpy(), rows.numpy())
        return torch.from_numpy(products_with_rows(*arrays))

    def _padded(self, vectors: Float32[Tensor, "row dim"]) -> Float32[Tensor, "row stored"]:
        if has_kernels(vectors.device) or vectors.shape[1] % COLUMN_MULTIPLE == 0:
            return vectors
        return torch.nn.functional.pad(vectors, (0, -vectors.shape[1] % COLUMN_MULTIPLE))

    def propose(
        self, queries: Float32[Tensor, "query stored"], m: int, index: IndexName | None = None
    ) -> Found:
        """Return the m largest float32 products, falling, and their rows; None: as chosen."""
        on_gpu = self.device.type == "cuda"
        if (index or self.choice.index) == "faiss" and not (on_gpu and m > MAX_FAISS_RESULTS):
            return faiss_search(queries.contiguous(), self.rows, m)
        parts = torch.split(queries, max(1, _MAX_PRODUCTS[self.device.type] // len(self.rows)))
        found = [largest(self.products(part), m) for part in parts]
        return torch.cat([x for x, _ in found]), torch.cat([x for _, x in found])

    def _choose(self, index: IndexName) -> IndexChoice:
        if index != "auto":
            if index == "faiss" and (problem := faiss_problem(self.device)):
                raise ConfigError(
                    f"index is 'faiss', and {problem}; expected 'auto' or 'torch', or "
                    'pip install "longtail[gpu]" on a machine with an NVIDIA GPU, or faiss-cpu'
                )
            return IndexChoice(index)
        if self.rows.numel() < _LEAST_TIMED or faiss_problem(self.device):
            return IndexChoice("torch")
        return self._faster()

    def _faster(self) -> IndexChoice:
        """Return which search takes less time for one text and for a batch, tried by turns."""
        m = min(26, len(self.rows))
        batches = [self.rows[:size] for size in _TIMED_BATCHES]
        times: dict[IndexName, list[float]] = {"torch": [], "faiss": []}
        for _ in range(_ROUNDS):
            for name, found in times.items():
                found.append(sum(self._seconds(name, batch, m) for batch in batches))
        faster, slower = sorted(times, key=lambda name: min(times[name]))
        choice = IndexChoice(faster, min(times[slower]) / max(min(times[faster]), 1e-9))
        logger.info(
            "index of %d label vectors on %s: %s, %.2f times as fast as %s",
            len(self.rows), self.device, faster, choice.speedup, slower,
        )  # fmt: skip
        return choice

    def _seconds(self, name: IndexName, queries: Float32[Tensor, "query stored"], m: int) -> float:
        started = time.perf_counter()
        if name == "torch" and self.whole is not None:
            lengths = np.linalg.norm(queries.numpy().astype(np.float64), axis=1)
            self.whole.propose(queries.numpy(), lengths, m)
        else:
            _ = self.propose(queries, m, name)[1].cpu()  # waits for the device
        return time.perf_counter() - started


def has_kernels(device: torch.device) -> bool:
    """Return whether compiled loops can read what lies there: in main memory."""
    return device.type == "cpu"


def faiss_problem(device: torch.device) -> str | None:
    """Return why FAISS can't search on a device; None where it can."""
    if not has_faiss():
        return "FAISS is not installed"
    if device.type == "cpu":
        return None
    import faiss

    has_gpu = hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0
    return None if has_gpu else "the installed FAISS sees no GPU"


def faiss_search(
    queries: Float32[Tensor, "query stored"], rows: Float32[Tensor, "row stored"], m: int
) -> Found:
    """Return the m largest inner products of each query, falling, and their rows, by FAISS.

    Where it found fewer, as among products that are not finite, a product is NaN.
    """
    import faiss

    if rows.device.type == "cpu":
        arrays = (queries.numpy(), rows.numpy())
        values, found = map(
            torch.from_numpy, faiss.knn(*arrays, m, metric=faiss.METRIC_INNER_PRODUCT)
        )
    else:
        values = torch.empty((len(queries), m), device=rows.device)
        found = torch.empty((len(queries), m), dtype=torch.int64, device=rows.device)
        with _FAISS_LOCK:
            faiss.bfKnn(_resources(), _parameters(faiss, queries, rows, values, found))
    values[found < 0] = torch.nan
    return values, found.clamp_(min=0)


def _parameters(faiss: Any, queries: Tensor, rows: Tensor, values: Tensor, found: Tensor) -> Any:
    """Return what `bfKnn` takes: where queries and rows lie on the GPU, and where answers go."""
    given = faiss.GpuDistanceParams()
    given.metric, given.device = faiss.METRIC_INNER_PRODUCT, rows.device.index
    given.k, given.dims = values.shape[1], rows.shape[1]
    given.vectors = faiss.cast_integer_to_float_ptr(rows.data_ptr())
    given.queries = faiss.cast_integer_to_float_ptr(queries.data_ptr())
    given.vectorType = given.queryType = faiss.DistanceDataType_F32
    given.numVectors, given.numQueries = len(rows), len(queries)
    given.outDistances = faiss.cast_integer_to_float_ptr(values.data_ptr())
    given.outIndices = faiss.cast_integer_to_idx_t_ptr(found.data_ptr())
    given.outIndicesType = faiss.IndicesDataType_I64
    return given


@cache
def _resources() -> Any:
    """Return what all searches of the process share, on PyTorch's stream; never destroyed."""
    import faiss

    resources = faiss.StandardGpuResources()
    resources.setTempMemory(2**28)
    resources.setPinnedMemory(0)
    resources.setDefaultNullStreamAllDevices()
    return resources


def free_gpu_bytes() -> int | None:
    """Return the free memory of the current GPU, in bytes; None where there is no GPU.

    What PyTorch keeps for later is given back first.
    """
    if not sees_gpu():
        return None
    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info()[0])


@contextmanager
def memory_errors(what: str) -> Iterator[None]:
    """Say in a `ConfigError` what the GPU has too little memory for."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # of FAISS and PyTorch
        words = ("alloc fail", "out of memory", "out_of_memory")
        if not isinstance(error, torch.OutOfMemoryError) and not any(
            x in str(error) for x in words
        ):
            raise
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        free = free_gpu_bytes()
        raise ConfigError(
            f"the GPU's memory is too small for {what} ({(free or 0) / 2**20:.0f} MiB are free; "
            f"{first_line[:200]}); unload a version, send fewer texts at a time, use a larger GPU, "
            "or the device 'cpu'"
        ) from error
