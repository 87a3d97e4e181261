"""Searches on a GPU against those on a CPU, to the bit; a stand-in checks FAISS's rules."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np
import pytest
import torch

from longtail.models.errors import ConfigError, DataError
from longtail.models.ranking import gpu_index
from longtail.models.ranking.gpu_index import GpuIndex, free_gpu_bytes, padded_columns
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
def test_a_gpu_answers_what_a_cpu_answers(gpu, make: Callable[[int], np.ndarray], dim: int) -> None:
    vectors, queries = make(dim), random(1, 7, dim)
    there, here = on_gpu(vectors), index_of(vectors)
    assert there.is_on_gpu and not here.is_on_gpu
    for k in (1, 10, 400):
        assert_same(there.top(queries, k), here.top(queries, k))
    labels = np.tile(np.arange(5), (7, 1))
    np.testing.assert_array_equal(there.score(queries, labels), here.score(queries, labels))
    assert gpu.asked


def test_all_indexes_share_one_set_of_bounded_memory(gpu) -> None:
    indexes = [on_gpu(random(seed, 50, 8)) for seed in range(6)]  # three, and three in a swap
    assert len(indexes) == gpu.num_live == 6 and gpu.num_resources == 1
    assert gpu.temporary_bytes == 2**28 and gpu.pinned_bytes == 0


def test_one_thread_makes_searches_and_destroys(gpu) -> None:
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


def test_the_garbage_collector_destroys_no_index_itself(gpu) -> None:
    index = on_gpu(random(0, 500, 24))
    circle = [index]
    circle.append(circle)
    alive = weakref.ref(index)
    del index, circle
    gc.collect()
    assert alive() is None
    free_gpu_bytes()
    assert gpu.num_live == 0 and threading.get_ident() not in gpu.threads


def test_an_index_lies_on_the_gpu_of_its_process(gpu) -> None:
    gpu.device = 3
    index = on_gpu(random(0, 50, 8))
    assert len(index) == 50 and [each.device for each in gpu.made] == [3]


@pytest.mark.parametrize(("dim", "stored"), [(1, 8), (8, 8), (386, 392), (387, 392)])
def test_rows_are_padded_with_zeros_to_a_multiple_of_8(dim: int, stored: int) -> None:
    vectors = random(0, 5, dim)
    padded = padded_columns(vectors)
    assert padded.shape == (5, stored) and padded.flags.c_contiguous
    np.testing.assert_array_equal(padded[:, :dim], vectors)
    assert not padded[:, dim:].any()


def test_vectors_on_a_gpu_are_in_main_memory_once(gpu) -> None:
    index = on_gpu(random(0, 50, 386))
    assert index.vectors.shape == (50, 386) and np.shares_memory(index.vectors, index._stored)


def test_more_candidates_than_faiss_selects_are_found_on_the_gpu(
    gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_index, "_MAX_TILE_NUMBERS", 8 * 700)
    monkeypatch.setattr(gpu_index, "_MAX_PRODUCTS", 2**14)
    vectors, queries = random(0, 5000, 6), random(1, 9, 6)
    index = on_gpu(vectors)
    wanted = index_of(vectors).top(queries, 2500)
    assert_same(index.top(queries, 2500), wanted)
    assert gpu.num_read >= 5000 and gpu.asked == []


@pytest.mark.parametrize("tile_rows", [100, 750, 4999, 10**6])
@pytest.mark.parametrize("m", [1, 2049, 4999])
def test_tiles_find_what_a_full_sort_finds(
    gpu, tile_rows: int, m: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_index, "_MAX_TILE_NUMBERS", 8 * tile_rows)
    monkeypatch.setattr(gpu_index, "MAX_RESULTS", 0)
    vectors, queries = random(0, 5000, 8), random(1, 3, 8)
    scores, rows = GpuIndex(vectors).search(queries, m)
    products = queries @ vectors.T
    np.testing.assert_allclose(scores, -np.sort(-products, axis=1)[:, :m], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(products, rows, 1), scores, rtol=1e-4, atol=1e-5)
    assert all(len(set(row)) == m for row in rows.tolist())


def test_products_of_reduced_precision_are_not_used(gpu, monkeypatch) -> None:
    """TensorFloat-32, which a program may allow, rounds by more than the margin."""
    monkeypatch.setattr(gpu_index, "MAX_RESULTS", 0)
    dtypes = []
    plain = torch.Tensor.__matmul__

    def noting(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        dtypes.append(one.dtype)
        return plain(one, other)

    monkeypatch.setattr(torch.Tensor, "__matmul__", noting)
    index = GpuIndex(random(0, 50, 8))
    index.search(random(1, 1, 8), 3)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    index.search(random(1, 1, 8), 3)
    assert dtypes == [torch.float32, torch.float64]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_queries_that_are_not_finite_are_refused_before_the_search(gpu, bad: float) -> None:
    """FAISS answers -1, which was read as the last label."""
    queries = random(1, 4, 24)
    queries[2, 5] = bad
    for index in (on_gpu(random(0, 500, 24)), index_of(random(0, 500, 24))):
        with pytest.raises(DataError, match=r"1 \(the first in row 2\) of 4 text vectors are not"):
            index.top(queries, 3)
    assert gpu.asked == []


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_label_vectors_that_are_not_finite_are_refused(gpu, bad: float) -> None:
    vectors = random(0, 50, 24)
    vectors[[3, 7], 5] = bad
    for make in (on_gpu, index_of):
        with pytest.raises(DataError, match=r"2 \(the first in row 3\) of 50 label vectors"):
            make(vectors)
    assert gpu.num_live == 0 and gpu.made == []


def test_products_that_overflow_are_found_all_the_same(gpu, monkeypatch) -> None:
    """FAISS's GPU search gives no row for them."""
    monkeypatch.setattr(faiss.GpuIndexFlatIP, "search", _without_last)
    vectors = random(0, 3000, 24)
    found = on_gpu(vectors).top(random(1, 4, 24), 5)
    assert_same(found, index_of(vectors).top(random(1, 4, 24), 5))
    assert gpu.num_read == 3000


def _without_last(index, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    scores, rows = index._rows.search(queries, k)
    rows[:, -1], scores[:, -1] = -1, -np.inf
    return scores, rows


@pytest.mark.parametrize("has_cuvs", [False, True])
def test_too_little_memory_for_an_index_is_told(gpu, has_cuvs: bool) -> None:
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


def test_too_little_memory_for_a_search_is_told(gpu, monkeypatch) -> None:
    def fail(*given: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore.")

    monkeypatch.setattr(faiss.GpuIndexFlatIP, "search", fail)
    index = on_gpu(random(0, 500, 8))
    with pytest.raises(ConfigError, match=r"a search of 19 labels for 2 texts .*2\.00 GiB\.\);"):
        index.top(random(1, 2, 8), 3)


def test_another_error_of_faiss_is_passed_on(gpu, monkeypatch) -> None:
    def fail(*given: object) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(faiss.GpuIndexFlatIP, "search", fail)
    with pytest.raises(RuntimeError, match="something else"):
        on_gpu(random(0, 500, 8)).top(random(1, 2, 8), 3)


def test_no_labels_need_no_gpu_index(gpu) -> None:
    index = on_gpu(random(0, 0, 8))
    assert index.top(random(1, 2, 8), 3).labels.tolist() == [[-1] * 3] * 2
    assert gpu.made == []


def test_a_gpu_that_pytorch_does_not_see_is_not_used(gpu, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not index_of(random(0, 5, 8), device="auto").is_on_gpu
    with pytest.raises(ConfigError, match="FAISS or PyTorch sees no GPU"):
        on_gpu(random(0, 5, 8))
    assert free_gpu_bytes() is None


def test_the_stand_in_checks_its_rules(gpu) -> None:
    """Each of them was broken by what made an index for each scorer by itself."""
    resources = faiss.StandardGpuResources()
    config = faiss.GpuIndexFlatConfig()
    with pytest.raises(AssertionError, match="each takes memory"):
        faiss.StandardGpuResources()
    with pytest.raises(AssertionError, match="temporary memory is not bounded"):
        faiss.GpuIndexFlatIP(resources, 8, config)
    resources.setTempMemory(1)
    with pytest.raises(AssertionError, match="pinned memory is not bounded"):
        faiss.GpuIndexFlatIP(resources, 8, config)
    resources.setPinnedMemory(0)
    with pytest.raises(AssertionError, match="not aligned"):
        faiss.GpuIndexFlatIP(resources, 386, config)
    index = faiss.GpuIndexFlatIP(resources, 8, config)
    with pytest.raises(AssertionError, match="after the first index"):
        resources.setPinnedMemory(0)
    index.add(random(0, 3000, 8))
    with pytest.raises(AssertionError, match="beyond what a GPU selects"):
        index.search(random(1, 1, 8), 2049)
    queries = np.full((1, 8), np.nan, dtype=np.float32)
    assert index.search(queries, 3)[1].tolist() == [[-1, -1, -1]]
    gpu.threads = {-1}
    with pytest.raises(AssertionError, match="another thread"):
        index.search(random(1, 1, 8), 3)
    gpu.threads.clear()
    with gpu.busy, pytest.raises(AssertionError, match="two threads"):
        index.search(random(1, 1, 8), 3)
    assert len(gpu.broken_rules) == 8
    del index
    gpu.broken_rules.clear()


def test_the_thread_of_the_gpu_hands_errors_over_and_holds_nothing() -> None:
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


def test_what_is_left_is_destroyed_before_the_interpreter_ends(gpu) -> None:
    index = on_gpu(random(0, 50, 8))
    gpu_index._OF_PROCESS[0].close()
    assert gpu.num_live == 0 and len(index) == 50
    gpu_index._OF_PROCESS.clear()
