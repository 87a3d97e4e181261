"""Searches on a GPU against those on a CPU, to the bit; a stand-in checks FAISS's rules."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from longtail.models.errors import ConfigError
from longtail.models.ranking import gpu_index
from longtail.models.ranking.gpu_index import GpuIndex, free_gpu_bytes
from longtail.models.ranking.gpu_thread import GpuThread
from longtail.models.ranking.index import InnerProductIndex
from longtail.models.ranking.top_k import Ranking

WIDTHS = (1, 8, 24, 386)


def random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def index_of(vectors: np.ndarray, **options: object) -> InnerProductIndex:
    return InnerProductIndex(vectors, np.arange(len(vectors), dtype=np.int64), **options)


def on_gpu(vectors: np.ndarray) -> InnerProductIndex:
    return index_of(vectors, device="cuda")


def near_ties(dim: int) -> np.ndarray:
    """Vectors that differ by one unit in the last place of one coordinate."""
    vectors = np.repeat(random(0, 1, dim), 500, axis=0)
    rows = np.arange(500)
    vectors[rows, rows % dim] = np.nextafter(vectors[rows, rows % dim], np.float32(np.inf))
    return vectors


def assert_same(found: Ranking, wanted: Ranking) -> None:
    np.testing.assert_array_equal(found.labels, wanted.labels)
    np.testing.assert_array_equal(found.scores, wanted.scores)


@pytest.mark.parametrize("dim", WIDTHS)
@pytest.mark.parametrize("make", [lambda dim: random(0, 3000, dim), near_ties])
def test_a_gpu_answers_what_a_cpu_answers(gpu, make, dim):
    vectors, queries = make(dim), random(1, 7, dim)
    there, here = on_gpu(vectors), index_of(vectors)
    assert there.is_on_gpu and not here.is_on_gpu
    for k in (1, 10, 400):
        assert_same(there.top(queries, k), here.top(queries, k))
    labels = np.tile(np.arange(5), (7, 1))
    np.testing.assert_array_equal(there.score(queries, labels), here.score(queries, labels))
    assert gpu.asked


def test_one_thread_makes_searches_and_destroys(gpu):
    """With the code of before, threads that did so at once broke the stand-in's rule."""
    vectors, queries = random(0, 500, 24), random(1, 5, 24)
    wanted = index_of(vectors).top(queries, 3)

    def make_and_search(number: int) -> None:
        index = on_gpu(vectors)
        for _ in range(5):
            assert_same(index.top(queries, 3), wanted)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(make_and_search, range(16)))
    gc.collect()
    assert free_gpu_bytes() == 2**30
    assert gpu.num_live == 0 and len(gpu.made) == 16
    assert len(gpu.threads) == 1 and threading.get_ident() not in gpu.threads


@pytest.mark.parametrize("tile_rows", [100, 750, 4999, 10**6])
@pytest.mark.parametrize("m", [1, 2049, 4999])
def test_tiles_find_what_a_full_sort_finds(gpu, tile_rows, m, monkeypatch):
    monkeypatch.setattr(gpu_index, "_MAX_TILE_NUMBERS", 8 * tile_rows)
    monkeypatch.setattr(gpu_index, "MAX_RESULTS", 0)
    vectors, queries = random(0, 5000, 8), random(1, 3, 8)
    scores, rows = GpuIndex(vectors).search(queries, m)
    products = queries @ vectors.T
    np.testing.assert_allclose(scores, -np.sort(-products, axis=1)[:, :m], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(products, rows, 1), scores, rtol=1e-4, atol=1e-5)
    assert all(len(set(row)) == m for row in rows.tolist())


@pytest.mark.parametrize("has_cuvs", [False, True])
def test_too_little_memory_for_an_index_is_told(gpu, has_cuvs):
    gpu.has_cuvs, gpu.free_bytes = has_cuvs, 2**20
    with pytest.raises(
        ConfigError,
        match=r"GPU 0: its memory is too small for an index of 50000 label vectors \(1 MiB are "
        r"free; .*\); unload a version, .* or the device 'cpu'",
    ):
        on_gpu(random(0, 50_000, 8))
    free_gpu_bytes()
    assert gpu.num_live == 0 and len(gpu.made) == 1  # what was half made is destroyed, there too
    assert len(on_gpu(random(0, 50, 8))) == 50


def test_the_thread_of_the_gpu_hands_errors_over_and_holds_nothing():
    thread = GpuThread()

    class Held:
        """Something that must not outlive its call."""

    def fail() -> None:
        held = Held()
        alive.append(weakref.ref(held))
        raise ValueError("as it is")

    alive: list[weakref.ref[Held]] = []
    with pytest.raises(ValueError, match="as it is") as caught:
        thread.call(fail)
    assert caught.value is not None and alive[0]() is None
    assert thread.call(lambda: thread.call(threading.get_ident)) != threading.get_ident()
    thread.stop()
