"""What FAISS gives to searches on a CPU: exact and approximate, beside a matrix product and `topk`.

    python tests/bench/flat_search.py [--sizes 100000 1000000] [--threads 2] [--json FILE]

Vectors of 384 numbers and length 1 around a thousand centres, as document vectors are; 32 queries
of the same kind at once, and one; the best 10. Ways take turns in each round, and a figure is the
median over the rounds of the ratio to the product of the same round, so that other work on the
machine counts for all alike; CPU seconds of building and the recall of the best 10 are beside it.
HNSW is built for up to 100,000 vectors: beyond, it takes tens of minutes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import faiss
import numpy as np
import torch
from jaxtyping import Float32, Int64
from machine import begin
from recording import add_json_option, keep

DIM, K, NUM_CENTRES, NUM_QUERIES = 384, 10, 1000, 32
NUM_PROBES = 16
MOST_FOR_HNSW = 10**5
COLUMNS = ("vectors", "search", "one text, ratio", "32 texts, ratio", "32 texts, ms at least",
           "recall", "built in, CPU s")  # fmt: skip
Search = Callable[[np.ndarray], np.ndarray]


def vectors_of(num_rows: int, seed: int) -> Float32[np.ndarray, "row dim"]:
    """Return made-up vectors around the centres, of length 1."""
    centres = np.random.default_rng(0).standard_normal((NUM_CENTRES, DIM), dtype=np.float32)
    rng = np.random.default_rng(seed)
    vectors = np.empty((num_rows, DIM), dtype=np.float32)
    for start in range(0, num_rows, 2**17):
        part = vectors[start : start + 2**17]
        rng.standard_normal(out=part, dtype=np.float32)
        part += centres[rng.integers(NUM_CENTRES, size=len(part))]
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return vectors


def ways(vectors: Float32[np.ndarray, "row dim"]) -> Iterator[tuple[str, float, Search]]:
    """Yield each way to search, the CPU seconds that it was built in, and the search."""

    def product(queries: np.ndarray) -> Int64[np.ndarray, "query k"]:
        return torch.from_numpy(queries @ vectors.T).topk(K).indices.numpy()

    def of_pytorch(queries: np.ndarray) -> Int64[np.ndarray, "query k"]:
        return (torch.from_numpy(queries) @ torch.from_numpy(vectors).T).topk(K).indices.numpy()

    yield "NumPy's product and topk", 0.0, product
    yield "PyTorch's product and topk", 0.0, of_pytorch
    yield "FAISS, flat", 0.0, lambda x: faiss.knn(x, vectors, K, faiss.METRIC_INNER_PRODUCT)[1]
    num_lists = 1024 if len(vectors) <= 10**5 else 4096
    yield built(f"FAISS, IVF{num_lists}, {NUM_PROBES} probes", f"IVF{num_lists},Flat", vectors)
    if len(vectors) <= MOST_FOR_HNSW:
        yield built("FAISS, HNSW32, ef 64", "HNSW32,Flat", vectors)


def built(name: str, recipe: str, vectors: np.ndarray) -> tuple[str, float, Search]:
    """Return an index that FAISS makes of a recipe."""
    started = time.process_time()
    index = faiss.index_factory(DIM, recipe, faiss.METRIC_INNER_PRODUCT)
    if hasattr(index, "nlist"):
        index.cp.max_points_per_centroid = 64
        index.nprobe = NUM_PROBES
    else:
        index.hnsw.efSearch = 64
    index.train(vectors)
    index.add(vectors)
    return name, time.process_time() - started, lambda x: index.search(x, K)[1]


def main() -> None:
    """Print a row for each way and number of vectors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**5, 10**6])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    add_json_option(parser)
    options = begin(parser)
    torch.set_num_threads(options.threads)
    faiss.omp_set_num_threads(options.threads)
    rows = []
    for size in options.sizes:
        vectors, queries = vectors_of(size, 1), vectors_of(NUM_QUERIES, 2)
        found = list(ways(vectors))
        exact = found[0][2](queries)
        times: dict[tuple[str, int], list[float]] = {}
        for _ in range(options.rounds):
            for name, _seconds, search in found:
                for count in (1, NUM_QUERIES):
                    started = time.perf_counter()
                    search(queries[:count])
                    times.setdefault((name, count), []).append(time.perf_counter() - started)
        for name, seconds, search in found:
            answers = zip(search(queries), exact, strict=True)
            share = np.mean([len(set(x) & set(y)) / K for x, y in answers])
            row: list[str | float] = [f"{size:,}", name]
            for count in (1, NUM_QUERIES):
                base = times[found[0][0], count]
                pairs = zip(times[name, count], base, strict=True)
                row.append(round(statistics.median(x / y for x, y in pairs), 3))
            least = round(1000 * min(times[name, NUM_QUERIES]), 1)
            rows.append([*row, least, round(float(share), 3), round(seconds, 1)])
            print(*rows[-1], sep=" | ", flush=True)
        # After each size: the next one may be too large for the machine.
        keep(options.json, {"search": {"columns": [{"name": x} for x in COLUMNS], "rows": rows}})


if __name__ == "__main__":
    main()
