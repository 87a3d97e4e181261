"""A stand-in for FAISS's GPU classes, which searches on the CPU and refuses what they refuse."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import faiss
import numpy as np
import pytest
import torch

from longtail.models.ranking import gpu_index

NUM_GPUS = 4


@dataclass
class Gpu:
    """What was done to it."""

    free_bytes: int = 2**30
    device: int = 0
    has_cuvs: bool = True
    broken_rules: list[str] = field(default_factory=list)
    num_resources: int = 0
    temporary_bytes: int | None = None
    pinned_bytes: int | None = None
    threads: set[int] = field(default_factory=set)
    made: list[Config] = field(default_factory=list)
    num_live: int = 0
    asked: list[int] = field(default_factory=list)
    num_read: int = 0
    busy: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def call(self) -> Iterator[None]:
        """One thread alone may be in FAISS, always the same one."""
        self.require(self.busy.acquire(blocking=False), "two threads are in FAISS at once")
        try:
            self.threads.add(threading.get_ident())
            self.require(len(self.threads) == 1, "another thread calls FAISS")
            yield
        finally:
            self.busy.release()

    def require(self, is_kept: bool, rule: str) -> None:
        if not is_kept:
            self.broken_rules.append(rule)
            raise AssertionError(rule)

    def take(self, num_bytes: int, config: Config) -> None:
        if num_bytes > self.free_bytes:
            if config.use_cuvs:
                raise MemoryError("std::bad_alloc: out_of_memory: CUDA error at: device.hpp")
            raise RuntimeError(
                "Error in virtual void* faiss::gpu::StandardGpuResourcesImpl::allocMemory: "
                "StandardGpuResources: alloc fail type FlatData dev 0 space Device"
            )
        self.free_bytes -= num_bytes


class Config:
    """Stands in for `GpuIndexFlatConfig`."""

    def __init__(self, *, use_cuvs: bool) -> None:
        self.device = 0
        self.use_cuvs = use_cuvs


class Resources:
    """Stands in for `StandardGpuResources`; memory is set before the first index, or FAISS ends."""

    def __init__(self, gpu: Gpu) -> None:
        gpu.num_resources += 1
        gpu.require(gpu.num_resources == 1, "each takes memory of the GPU")
        self.gpu = gpu

    def setTempMemory(self, size: int) -> None:  # noqa: N802
        self.gpu.require(not self.gpu.made, "memory is set after the first index")
        self.gpu.temporary_bytes = size

    def setPinnedMemory(self, size: int) -> None:  # noqa: N802
        self.gpu.require(not self.gpu.made, "memory is set after the first index")
        self.gpu.pinned_bytes = size


class FlatIndex:
    """Stands in for `GpuIndexFlatIP`."""

    def __init__(self, resources: Resources, dim: int, config: Config) -> None:
        gpu = resources.gpu
        with gpu.call():
            gpu.require(gpu.temporary_bytes is not None, "temporary memory is not bounded")
            gpu.require(gpu.pinned_bytes is not None, "pinned memory is not bounded")
            gpu.require(dim % 8 == 0, "rows are not aligned")
            gpu.require(0 <= config.device < NUM_GPUS, "there is no such device")
            gpu.require(gpu.has_cuvs or not config.use_cuvs, "FAISS was built without cuVS")
            self._rows = faiss.IndexFlatIP(dim)
            self._gpu, self._config, self._num_bytes = gpu, config, 0
            gpu.made.append(config)
            gpu.num_live += 1

    def __del__(self) -> None:
        if hasattr(self, "_gpu"):
            with self._gpu.call():
                self._gpu.num_live -= 1
                self._gpu.free_bytes += self._num_bytes

    @property
    def d(self) -> int:
        return self._rows.d

    @property
    def ntotal(self) -> int:
        return self._rows.ntotal

    def add(self, vectors: np.ndarray) -> None:
        with self._gpu.call():
            self._gpu.take(vectors.nbytes, self._config)
            self._num_bytes += vectors.nbytes
            self._rows.add(vectors)

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        with self._gpu.call():
            self._gpu.require(queries.shape[1] == self.d, "queries are of another length")
            self._gpu.require(k <= 2048, "k is beyond what a GPU selects")
            self._gpu.asked.append(k)
            scores, rows = self._rows.search(queries, k)
            rows[~np.isfinite(queries).all(axis=1)] = -1  # without any error
            return scores, rows

    def reconstruct_n_c(self, start: int, num: int, pointer: object) -> None:
        with self._gpu.call():
            self._gpu.num_read += num
            self._rows.reconstruct_n_c(start, num, pointer)


@pytest.fixture
def gpu(monkeypatch):
    """A machine with GPUs, which checks each rule of FAISS; they compute on the CPU."""
    gpu = Gpu()
    stand_ins = {
        "StandardGpuResources": lambda: Resources(gpu),
        "GpuIndexFlatConfig": lambda: Config(use_cuvs=gpu.has_cuvs),
        "GpuIndexFlatIP": FlatIndex,
        "get_num_gpus": lambda: NUM_GPUS,
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(faiss, name, stand_in, raising=False)
    of_pytorch = {
        "is_available": lambda: True,
        "current_device": lambda: gpu.device,
        "synchronize": lambda device: None,
        "empty_cache": lambda: None,
        "mem_get_info": lambda device: (gpu.free_bytes, 2**30),
    }
    for name, stand_in in of_pytorch.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(gpu_index, "_torch_device", lambda number: torch.device("cpu"))
    monkeypatch.setattr(gpu_index, "_OF_PROCESS", indexes := [])
    yield gpu
    gc.collect()
    for each in indexes:
        each.close()
    assert gpu.broken_rules == []
    assert gpu.num_live == 0
