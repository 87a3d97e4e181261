"""Label vectors on one device, and three ways to propose rows: PyTorch, FAISS, whole numbers.

All read the same rows; whichever is faster on them is taken, as all are exact once float64 has
decided. FAISS's search is that of its flat index, by one thread at a time: its GPU classes are not
safe for concurrent use, and a failed CUDA call inside FAISS ends the process.

A processor multiplies whole numbers of 16 bits twice as fast as float32 and reads them in half the
time (`whole.c`). Their sums are exact, so a product's error is that of rounding its vectors.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int16, Int64
from torch import Tensor, get_num_threads

from longtail.models.errors import ConfigError
from longtail.models.extras import is_installed
from longtail.models.names import IndexName
from longtail.models.native.library import F32, I16, I64, INT, function
from longtail.models.processor import sees_gpu
from longtail.models.ranking.certified import largest, products_on_device
from longtail.models.ranking.top_k import IndexChoice, in_row_parts, products_with_rows

_PACK = 16
"""Rows that lie together, as in whole.c."""
_MOST, _LONGEST = 2**15 - 1, 46_000
"""Largest component and length of a vector in whole numbers: a product of two lengths is below
2^31, with room for what rounding adds."""
_MAX_DIM = 2**14
"""So that rounding, by half a number in each dimension, adds less than that room."""
_BLOCK_NUMBERS = 2**22
_ALONE = 2**24
"""Multiplications that one thread does by itself."""
_is_fast = function("whole_is_fast")
_nearest = function(
    "whole_nearest", queries=I16["num_queries dim"], num_queries=INT, packs=I16, begin=INT, end=INT,
    dim=INT, m=INT, found=I64.out["num_queries m"], sums=F32.out["num_queries m"],
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Proposals:
    """Rows of large products for each query, in no order.

    Attributes:
        rows: Numbers of the rows.
        least: What the near product of no other row exceeds.
        margins: How far a near product may lie from the exact one, rounded to float32.
    """

    rows: Int64[np.ndarray, "query m"]
    least: Float64[np.ndarray, query]
    margins: Float64[np.ndarray, query]


class WholeRows:
    """Vectors in whole numbers, all by one scale."""

    def __init__(self, vectors: Float32[np.ndarray, "row dim"], longest: float) -> None:
        """Round vectors.

        Args:
            vectors: Finite, and such that it `pays`.
            longest: Length of the longest one.
        """
        self._num_rows, dim = vectors.shape
        self._longest, self._error = longest, 0.0
        size = max(1, _BLOCK_NUMBERS // (_PACK * dim)) * _PACK
        parts = [slice(start, start + size) for start in range(0, self._num_rows, size)]
        largest = max(float(np.abs(vectors[part]).max()) for part in parts)
        self._scale = float(_scales(np.array([largest]), np.array([longest]))[0])
        num_packs = -(-self._num_rows // _PACK)
        self._packs = np.zeros((num_packs, (dim + 1) // 2, _PACK, 2), dtype=np.int16)
        for part in parts:
            whole, errors = _rounded(vectors[part], self._scale)
            self._error = max(self._error, float(errors.max()))
            packs = _packed(whole)
            self._packs[part.start // _PACK :][: len(packs)] = packs

    def propose(
        self,
        queries: Float32[np.ndarray, "query dim"],
        lengths: Float64[np.ndarray, query],
        m: int,
    ) -> Proposals:
        """Return the m rows of largest product with each query.

        No margin is finite where a product may overflow.

        Args:
            queries: Finite.
            lengths: The queries' lengths.
            m: At most the number of rows.
        """
        scales = _scales(np.abs(queries).max(axis=1).astype(np.float64), lengths)
        whole, errors = _rounded(queries, scales[:, None])
        rows, sums = self._nearest(whole, m)
        # q·w - q'·w' = (q - q')·w + q'·(w - w'), by Cauchy and Schwarz; sums are rounded to
        # float32, and so are exact products, by 2^-24 of what no product exceeds.
        sizes = (lengths + errors) * (self._longest + self._error)
        margins = errors * self._longest + (lengths + errors) * self._error
        margins += sizes * 2.0**-22 + 2.0**-126
        margins[sizes >= 2.0**127] = np.inf
        return Proposals(rows, sums.min(axis=1) / (scales * self._scale), margins)

    def _nearest(
        self, queries: Int16[np.ndarray, "query even"], m: int
    ) -> tuple[Int64[np.ndarray, "query m"], Float32[np.ndarray, "query m"]]:
        """Return the m rows of largest sum, by several threads where that is worth it."""
        is_large = queries.size * self._num_rows > _ALONE
        num_parts = min(get_num_threads(), self._num_rows // max(_PACK, m)) if is_large else 1
        size = -(-self._num_rows // (max(1, num_parts) * _PACK)) * _PACK

        def search(part: slice) -> tuple[np.ndarray, np.ndarray]:
            end = min(part.stop, self._num_rows)
            shape = (len(queries), min(m, end - part.start))
            found = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.float32)
            dim = queries.shape[1]
            _nearest(queries, len(queries), self._packs, part.start, end, dim, shape[1], *found)
            return found

        parts = in_row_parts(search, self._num_rows, max(1, num_parts), size)
        if len(parts) == 1:
            return parts[0]
        rows, sums = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
        best = np.argpartition(sums, -m, axis=1)[:, -m:]
        return np.take_along_axis(rows, best, axis=1), np.take_along_axis(sums, best, axis=1)


def pays(vectors: Float32[np.ndarray, "row dim"]) -> bool:
    """Return whether whole numbers are faster on this processor, and their sums fit 32 bits."""
    return bool(vectors.size and vectors.shape[1] <= _MAX_DIM and _is_fast())


def _scales(
    largest: Float64[np.ndarray, row], lengths: Float64[np.ndarray, row]
) -> Float64[np.ndarray, row]:
    """Return what vectors are multiplied by, of their largest number and their length."""
    is_zero = lengths == 0
    largest, lengths = np.where(is_zero, 1, largest), np.where(is_zero, 1, lengths)
    return np.minimum(_MOST / largest, _LONGEST / lengths)


def _rounded(
    vectors: Float32[np.ndarray, "row dim"], scales: float | Float64[np.ndarray, "row 1"]
) -> tuple[Int16[np.ndarray, "row even"], Float64[np.ndarray, row]]:
    """Return vectors in whole numbers, with a zero behind an odd number, and their errors."""
    whole = np.rint(vectors * np.float64(scales))
    errors = np.linalg.norm(vectors - whole / scales, axis=1)
    found = np.zeros((len(whole), whole.shape[1] + whole.shape[1] % 2), dtype=np.int16)
    found[:, : whole.shape[1]] = whole
    return found, errors


def _packed(rows: Int16[np.ndarray, "row even"]) -> Int16[np.ndarray, "pack half 16 2"]:
    """Return rows in packs, as whole.c reads them; the last one is filled with zeros."""
    filled = np.zeros((-(-len(rows) // _PACK) * _PACK, rows.shape[1]), dtype=np.int16)
    filled[: len(rows)] = rows
    return filled.reshape(-1, _PACK, rows.shape[1] // 2, 2).swapaxes(1, 2)


COLUMN_MULTIPLE = 8
"""On a GPU rows begin at multiples of 32 bytes, as the fastest kernels want."""
MAX_FAISS_RESULTS = 2048
"""Most results of a search on a GPU (getMaxKSelection); PyTorch finds more."""
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
        device: Where they are.
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
                    'pip install "longtail[faiss]" (with an NVIDIA GPU: "longtail[gpu]")'
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
    """Return whether compiled loops can read what is there: in main memory."""
    return device.type == "cpu"


def faiss_problem(device: torch.device) -> str | None:
    """Return why FAISS can't search on a device; None where it can."""
    if not is_installed("faiss"):
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
    """Return what `bfKnn` takes: where queries and rows are on the GPU, and where answers go."""
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
