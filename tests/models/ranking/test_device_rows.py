"""What runs on a GPU, run on the CPU: its float64 sums, its searches, FAISS beside PyTorch."""

from types import SimpleNamespace

import faiss
import numpy as np
import pytest
import torch

from longtail.models.errors import ConfigError
from longtail.models.ranking import certified, device_rows
from longtail.models.ranking.certified import largest, product_error, products_on_device
from longtail.models.ranking.device_rows import (
    DeviceRows,
    IndexChoice,
    faiss_search,
    free_gpu_bytes,
)
from longtail.models.ranking.index import InnerProductIndex
from longtail.models.ranking.top_k import products_with_rows, top_of_scores
from tests.rankings import assert_same


def random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def exact_products(vectors: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """The oracle: the compiled loop over every row."""
    rows = np.tile(np.arange(len(vectors)), (len(queries), 1))
    return products_with_rows(queries, vectors, rows)


def index_of(vectors: np.ndarray, **options: object) -> InnerProductIndex:
    return InnerProductIndex(vectors, np.arange(len(vectors), dtype=np.int64), **options)


def scaled(*sizes: float) -> np.ndarray:
    """Rows of very unlike lengths, side by side."""
    vectors = random(0, 600, 21)
    for place, size in enumerate(sizes):
        vectors[place :: len(sizes)] *= np.float32(size)
    return vectors


PROBLEMS = {
    "random": lambda: random(0, 600, 21),
    "equal": lambda: np.repeat(random(0, 6, 21), 100, axis=0),
    "all equal": lambda: np.repeat(random(0, 1, 21), 600, axis=0),
    "tiny beside large": lambda: scaled(1e-8, 1e4),
    "tiny": lambda: scaled(1e-38, 1e-30),
    "huge": lambda: scaled(1e37, -1e37, 3e36),
    "bias and prior": lambda: np.hstack([random(0, 600, 19), 1e3 * random(1, 600, 2)]),
    "zeros": lambda: np.zeros((600, 21), dtype=np.float32),
}
QUERIES = (
    random(3, 9, 21) * np.array([1e-30, 1e-5, 1, 1, 1, 1, 10, 10, 40], dtype=np.float32)[:, None]
)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("index", ["torch", "faiss"])
@pytest.mark.parametrize("k", [1, 10, 599, 600, 700])
def test_the_device_path_is_brute_force(as_on_gpu, problem, index, k):
    vectors = PROBLEMS[problem]()
    found = index_of(vectors, index=index)
    assert found.choice == IndexChoice(index)
    with np.errstate(over="ignore"):
        wanted = top_of_scores(exact_products(vectors, QUERIES), k)
    assert_same(found.top(QUERIES, k), wanted)
    labels = np.tile(np.array([0, 599, 3, -1, 600]), (len(QUERIES), 1))
    scores = found.score(QUERIES, labels)
    np.testing.assert_array_equal(scores[:, :3], exact_products(vectors, QUERIES)[:, labels[0, :3]])
    assert np.isneginf(scores[:, 3:]).all()


def test_sums_that_overflow_in_float32_alone_are_found():
    """A proposal of -inf says nothing: the float64 sum is the largest of all."""
    vectors = np.zeros((100, 4), dtype=np.float32)
    vectors[:, 3] = np.arange(100)
    vectors[7] = -3e38, -3e38, 3e38, 3e38
    queries = np.array([[1, 1, 1, 1.1]], dtype=np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        found = index_of(vectors).top(queries, 3)
    assert found.labels.tolist() == [[7, 99, 98]]


@pytest.mark.parametrize("dim", [1, 5, 8, 9, 24, 386])
@pytest.mark.parametrize("most", [1, 100, 2**23])
def test_pytorch_sums_as_the_compiled_loop_does(monkeypatch, dim, most):
    monkeypatch.setattr("longtail.models.ranking.certified._MAX_TERMS", most)
    vectors, queries = random(0, 50, dim) * 1e3, random(1, 7, dim)
    rows = np.random.default_rng(2).integers(50, size=(7, 13))
    padded = np.pad(vectors, ((0, 0), (0, -dim % 8)), constant_values=np.nan)
    asked = np.pad(queries, ((0, 0), (0, -dim % 8)))
    found = products_on_device(*map(torch.from_numpy, (asked, padded, rows)), dim)
    np.testing.assert_array_equal(found.numpy(), products_with_rows(queries, vectors, rows))


@pytest.mark.gpu
@pytest.mark.parametrize("dim", [5, 24, 386])
def test_a_gpu_sums_as_the_compiled_loop_does(dim):
    vectors, queries = random(0, 5000, dim), random(1, 64, dim)
    rows = np.random.default_rng(2).integers(5000, size=(64, 80))
    on_gpu = (torch.from_numpy(x).cuda() for x in (queries, vectors, rows))
    found = products_on_device(*on_gpu, dim).cpu().numpy()
    np.testing.assert_array_equal(found, products_with_rows(queries, vectors, rows))


@pytest.mark.gpu
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("index", ["torch", "faiss"])
@pytest.mark.parametrize("k", [1, 10, 600])
def test_a_gpu_answers_what_a_cpu_answers(problem, index, k):
    vectors = PROBLEMS[problem]()
    found = index_of(vectors, device="cuda", index=index)
    assert_same(found.top(QUERIES, k), index_of(vectors).top(QUERIES, k))


@pytest.mark.parametrize("size", [1, 700, 5000, 60_001])
@pytest.mark.parametrize("m", [1, 26, 500])
def test_the_largest_are_found_in_groups(monkeypatch, size, m):
    monkeypatch.setattr(certified, "_GROUPED", ("cpu",))
    scores = torch.from_numpy(random(0, 3, size).round(2))
    values, rows = largest(scores, m := min(m, size))
    assert torch.equal(values, scores.sort(dim=1, descending=True).values[:, :m])
    assert torch.equal(scores.gather(1, rows), values)
    assert all(len(set(row)) == m for row in rows.tolist())


def test_parts_give_what_the_whole_gives(monkeypatch, as_on_gpu):
    vectors, queries = random(0, 500, 21).round(1), random(1, 9, 21).round(1)
    whole = index_of(vectors).top(queries, 50)
    monkeypatch.setattr(device_rows, "_MAX_PRODUCTS", {"cpu": 700})
    monkeypatch.setattr(certified, "_MAX_CANDIDATES", 100)
    assert_same(index_of(vectors).top(queries, 50), whole)


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_less_precise_products_get_a_wider_margin(precision, monkeypatch, as_on_gpu):
    """As TensorFloat-32 does: factors of 10 bits, of which the margin knows."""
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
    bits = {"high": 13, "medium": 16}[precision]

    def rough(self, queries):
        factors = [x.view(torch.int32) >> bits << bits for x in (queries, self.rows)]
        return factors[0].view(torch.float32) @ factors[1].view(torch.float32).T

    monkeypatch.setattr(DeviceRows, "products", rough)
    vectors, queries = 3 + 0.001 * random(0, 600, 21), 3 + random(1, 9, 21)
    wanted = top_of_scores(exact_products(vectors, queries), 10)
    assert_same(index_of(vectors).top(queries, 10), wanted)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "highest")
    found = index_of(vectors).top(queries, 10)
    assert not np.array_equal(found.labels, wanted.labels)  # so the margin is needed


def test_a_precision_that_pytorch_can_not_name_is_taken_for_the_lowest(monkeypatch):
    def confused() -> str:
        raise RuntimeError("mix of the legacy and new APIs")

    monkeypatch.setattr(torch, "get_float32_matmul_precision", confused)
    assert product_error() == 2.0**-6


def test_auto_takes_what_took_less_time_and_tells_by_how_much(monkeypatch, caplog):
    monkeypatch.setattr(device_rows, "_LEAST_TIMED", 0)
    vectors = random(0, 500, 8)
    for slow, fast in (("torch", "faiss"), ("faiss", "torch")):
        seconds = {slow: 3.0, fast: 2.0}
        monkeypatch.setattr(DeviceRows, "_seconds", lambda self, name, *_, s=seconds: s[name])
        with caplog.at_level("INFO"):
            index = index_of(vectors, index="auto")
        assert index.choice == IndexChoice(fast, 1.5)
        assert f"500 label vectors on cpu: {fast}, 1.50 times as fast as {slow}" in caplog.text
        assert_same(index.top(vectors[:3], 5), index_of(vectors).top(vectors[:3], 5))
    monkeypatch.undo()
    assert index_of(vectors, index="auto").choice == IndexChoice("torch")  # too few to try
    monkeypatch.setattr(device_rows, "_LEAST_TIMED", 0)
    assert index_of(vectors, index="auto").choice.speedup >= 1


def test_without_faiss_pytorch_serves(monkeypatch):
    monkeypatch.setattr(device_rows, "_LEAST_TIMED", 0)
    monkeypatch.setattr(device_rows, "is_installed", lambda extra: False)
    assert index_of(random(0, 50, 8), index="auto").choice == IndexChoice("torch")
    with pytest.raises(ConfigError, match=r"index is 'faiss', and FAISS is not installed; .*pip"):
        index_of(random(0, 50, 8), index="faiss")


def test_a_faiss_that_sees_no_gpu_is_told(monkeypatch):
    assert device_rows.faiss_problem(torch.device("cuda")) == "the installed FAISS sees no GPU"
    monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
    assert device_rows.faiss_problem(torch.device("cuda")) is None


def test_faiss_is_given_where_queries_rows_and_answers_lie():
    """Names and types of `GpuDistanceParams`, which the FAISS for CPUs lacks."""
    module = SimpleNamespace(
        GpuDistanceParams=SimpleNamespace, METRIC_INNER_PRODUCT=0, DistanceDataType_F32=1,
        IndicesDataType_I64=2, cast_integer_to_float_ptr=int, cast_integer_to_idx_t_ptr=int,
    )  # fmt: skip
    queries, rows, values = torch.zeros(3, 8), torch.zeros(5, 8), torch.zeros(3, 2)
    found = torch.zeros(3, 2, dtype=torch.int64)
    given = device_rows._parameters(module, queries, rows, values, found)
    assert given.metric == module.METRIC_INNER_PRODUCT
    assert (given.numVectors, given.numQueries, given.dims, given.k) == (5, 3, 8, 2)
    assert given.vectors == rows.data_ptr() and given.queries == queries.data_ptr()
    assert given.outDistances == values.data_ptr() and given.outIndices == found.data_ptr()


def test_rows_that_faiss_does_not_find_are_no_proposals():
    vectors = np.full((20, 4), np.nan, dtype=np.float32)
    values, rows = faiss_search(torch.ones(1, 4), torch.from_numpy(vectors), 3)
    assert values.isnan().all() and (rows >= 0).all()


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        MemoryError("std::bad_alloc: out_of_memory: CUDA error at: device.hpp"),
        RuntimeError("StandardGpuResources: alloc fail type FlatData dev 0 space Device"),
    ],
)
def test_too_little_memory_is_told(monkeypatch, as_on_gpu, error):
    index = index_of(random(0, 50, 8))

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(DeviceRows, "propose", fail)
    with pytest.raises(
        ConfigError,
        match=r"memory is too small for a search of 2 labels for 3 texts \(0 MiB are free; .*\); "
        r"unload a version, .* or the device 'cpu'",
    ):
        index.top(random(1, 3, 8), 2)
    monkeypatch.setattr(DeviceRows, "_padded", fail)
    with pytest.raises(ConfigError, match="too small for an index of 50 label vectors"):
        index_of(random(0, 50, 8))


def test_other_errors_stay_as_they_are(monkeypatch, as_on_gpu):
    def fail(*_: object) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(DeviceRows, "propose", fail)
    with pytest.raises(RuntimeError, match="illegal"):
        index_of(random(0, 50, 8)).top(random(1, 3, 8), 2)


def test_free_memory_of_the_gpu(monkeypatch):
    assert free_gpu_bytes() is None
    monkeypatch.setattr(device_rows, "sees_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (5, 9))
    assert free_gpu_bytes() == 5
