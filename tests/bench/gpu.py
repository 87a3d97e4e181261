"""What a GPU gives: exact search among label vectors, and rankings that a label tree corrects.

    python tests/bench/gpu.py [--device cuda] [--sizes 10000 100000 1000000] [--json FILE]

The same code runs on a CPU. Times are medians of some rounds, in milliseconds, the device
synchronised before and after. Rows have 386 numbers, as a vector with bias and prior has. *Exact*
is the answer of the service: the search, and what decides near ties in float64; *search* is the
search alone. `limit` is the time to read the vectors once at the bandwidth of a copy of 256 MiB,
which is measured here; a batch of 1,024 is bound by arithmetic instead. Memory: the index.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float32
from machine import begin
from recording import Table, add_json_option, keep

from longtail.models.errors import LongtailError
from longtail.models.label_tree.corrected_top_k import IndexCorrection, corrected_sources
from longtail.models.label_tree.tree import LabelTree, depth_of, one_sided_biases
from longtail.models.ranking.certified import SLACK
from longtail.models.ranking.device_rows import faiss_problem, free_gpu_bytes
from longtail.models.ranking.index import InnerProductIndex
from longtail.models.ranking.threshold_algorithm import SUM, rank

DIM, K, NUM_CLUSTERS, TREE_DIM = 386, 10, 1000, 16
BATCHES = (1, 64, 1024)
_MOST_OF_TREES = 10**6


@dataclass(frozen=True, slots=True)
class Device:
    """Where it runs, and how often each call is timed."""

    name: str
    rounds: int

    def milliseconds(self, work: Callable[..., object], *given: object) -> float:
        """Return the median time of a call; one more goes before the rounds."""
        found = []
        for _ in range(self.rounds + 1):
            self._wait()
            started = time.perf_counter()
            work(*given)
            self._wait()
            found.append(time.perf_counter() - started)
        return 1000 * statistics.median(found[1:])

    def bytes_a_millisecond(self) -> float:
        """Return the bandwidth of memory: of a copy, which reads and writes every byte."""
        source = torch.zeros(2**26, device=self.name)
        return 2 * source.nbytes / self.milliseconds(torch.empty_like(source).copy_, source)

    def free_bytes(self) -> int:
        """Return the free memory of the GPU; 0 on a CPU."""
        gc.collect()
        return free_gpu_bytes() or 0

    def _wait(self) -> None:
        if self.name == "cuda":
            torch.cuda.synchronize()


def vectors_of(num_rows: int, seed: int) -> Float32[np.ndarray, "row dim"]:
    """Return made-up vectors around 1000 centres, of length 1."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((NUM_CLUSTERS, DIM), dtype=np.float32)
    rng = np.random.default_rng(seed)
    vectors = np.empty((num_rows, DIM), dtype=np.float32)
    for start in range(0, num_rows, 2**17):
        part = vectors[start : start + 2**17]
        rng.standard_normal(out=part, dtype=np.float32)
        part += centres[rng.integers(NUM_CLUSTERS, size=len(part))]
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return vectors


def search(device: Device, sizes: Sequence[int]) -> Table:
    """Measure exact and plain searches, by PyTorch and by FAISS where it is installed."""
    table = Table({"labels": ",", "by": "", "batch": ",", "exact, ms": ".3g", "search, ms": ".3g",
                   "limit, ms": ".3g", "memory, MiB": ",.0f"})  # fmt: skip
    bandwidth = device.bytes_a_millisecond()
    problem = faiss_problem(torch.device(device.name))
    for size in sizes:
        vectors, queries = vectors_of(size, 1), vectors_of(max(BATCHES), 2)
        for name in ("torch",) if problem else ("torch", "faiss"):
            free = device.free_bytes()
            try:
                index = InnerProductIndex(
                    vectors, np.arange(size, dtype=np.int64), device=device.name, index=name
                )
                memory = (free - device.free_bytes() or vectors.nbytes) / 2**20
                for batch in BATCHES:
                    part = queries[:batch]
                    exact = device.milliseconds(index.top, part, K)
                    plain = device.milliseconds(partial(_search, index), part)
                    table.add(size, name, batch, exact, plain, vectors.nbytes / bandwidth, memory)
            except (RuntimeError, LongtailError) as error:
                table.add(size, f"{name}: {str(error).splitlines()[0][:80]}", *[None] * 5)
    return table


def _search(index: InnerProductIndex, queries: Float32[np.ndarray, "row dim"]) -> None:
    """Propose the best rows, without deciding."""
    scores = index.scores(queries)
    everything = torch.arange(len(queries), device=index.device)
    scores.propose(everything, min(K + SLACK, len(index)))


def correction(device: Device, sizes: Sequence[int]) -> Table:
    """Measure rankings that a label tree corrects, beside those without."""
    table = Table({"labels": ",", "batch": ",", "corrected, ms": ".3g", "plain, ms": ".3g"})
    for size in (x for x in sizes if x <= _MOST_OF_TREES):
        vectors, queries = vectors_of(size, 1), vectors_of(64, 2)
        index = InnerProductIndex(vectors, np.arange(size, dtype=np.int64), device=device.name)
        tree = IndexCorrection(index, _tree_of(size))
        for batch in (1, 64):
            part = queries[:batch]

            def corrected(part: np.ndarray = part, size: int = size) -> object:
                return rank([corrected_sources(tree, part, part)], SUM, K, size)  # noqa: B023

            table.add(
                size, batch, device.milliseconds(corrected), device.milliseconds(index.top, part, K)
            )
    return table


def _tree_of(num_labels: int) -> LabelTree:
    """Return a random tree."""
    rng = np.random.default_rng(0)
    num_leaves = 2 ** depth_of(num_labels)
    label_of_leaf = np.full(num_leaves, -1, dtype=np.int64)
    label_of_leaf[:num_labels] = rng.permutation(num_labels)
    return LabelTree.from_arrays(
        {
            "mean": np.zeros(DIM, dtype=np.float32),
            "components": rng.standard_normal((TREE_DIM, DIM), dtype=np.float32),
            "weights": rng.standard_normal((num_leaves - 1, TREE_DIM), dtype=np.float32),
            "biases": one_sided_biases((label_of_leaf >= 0).astype(np.int64)),
            "label_of_leaf": label_of_leaf,
        }
    )


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    add_json_option(parser)
    chosen = begin(parser)
    device = Device(chosen.device, chosen.rounds)
    is_gpu = chosen.device == "cuda"
    figures = {
        "device": torch.cuda.get_device_name() if is_gpu else f"{torch.get_num_threads()} threads",
        "search": search(device, chosen.sizes),
        "correction": correction(device, chosen.sizes),
    }
    keep(chosen.json, figures)


if __name__ == "__main__":
    main()
