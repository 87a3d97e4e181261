"""The index against float64 products of everything, to the bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from longtail.models.errors import ConfigError, DataError
from longtail.models.ranking.index import InnerProductIndex
from longtail.models.ranking.top_k import top_of_scores
from tests.rankings import assert_same

DIM = 24
Problem = tuple[np.ndarray, np.ndarray]  # label vectors, queries


def exact_products(vectors: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """The oracle: every product in float64, summed row by row, rounded once."""
    products = np.empty((len(queries), len(vectors)), dtype=np.float32)
    for row, query in enumerate(queries.astype(np.float64)):
        products[row] = (vectors.astype(np.float64) * query).sum(axis=1)
    return products


def all_labels(vectors: np.ndarray) -> np.ndarray:
    return np.arange(len(vectors), dtype=np.int64)


def random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def plain() -> Problem:
    return random(0, 500, DIM), random(1, 20, DIM)


def duplicates() -> Problem:
    return np.repeat(random(0, 5, DIM), 100, axis=0), random(1, 20, DIM)


def near_ties() -> Problem:
    """Vectors that differ by one unit in the last place of one coordinate."""
    vectors = np.repeat(random(0, 1, DIM), 500, axis=0)
    rows = np.arange(500)
    vectors[rows, rows % DIM] = np.nextafter(vectors[rows, rows % DIM], np.float32(np.inf))
    return vectors, random(1, 20, DIM)


def common_offset() -> Problem:
    """A large part that all share hides the small differences from float32 sums."""
    offset = 1000 * random(2, 1, DIM)
    return offset + random(0, 500, DIM), offset + random(1, 20, DIM)


def zeros() -> Problem:
    vectors, queries = plain()
    vectors[::3] = 0
    queries[::2] = 0
    return vectors, queries


def cancellation() -> Problem:
    vectors, queries = plain()
    vectors[:, 1], queries[:, 1] = 1e4 * vectors[:, 0], -queries[:, 0]
    vectors[:, 0] *= 1e4
    return vectors, queries


PROBLEMS = [plain, duplicates, near_ties, common_offset, zeros, cancellation]


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("k", [1, 10, 499, 500, 510])
def test_top_is_a_full_sort_of_the_exact_products(problem, k):
    vectors, queries = problem()
    found = InnerProductIndex(vectors, all_labels(vectors)).top(queries, k)
    assert_same(found, top_of_scores(exact_products(vectors, queries), k))


@pytest.mark.parametrize("problem", PROBLEMS)
def test_score_gives_the_bits_that_top_gives(problem):
    vectors, queries = problem()
    index = InnerProductIndex(vectors, all_labels(vectors))
    best = index.top(queries, 30)
    np.testing.assert_array_equal(index.score(queries, best.labels), best.scores)


@given(
    arrays(np.float32, (60, 3), elements=st.sampled_from([-1.0, 0.0, 0.1, 1.0])),
    arrays(np.float32, (2, 3), elements=st.sampled_from([-1.0, 0.0, 0.3])),
    st.integers(1, 65),
)
def test_top_is_exact_whatever_the_ties(vectors, queries, k):
    found = InnerProductIndex(vectors, all_labels(vectors)).top(queries, k)
    assert_same(found, top_of_scores(exact_products(vectors, queries), k))


@pytest.mark.parametrize("k", [3, 100, 400])
def test_only_the_labels_of_the_index_are_ranked(k):
    vectors, queries = plain()
    labels = np.flatnonzero(np.arange(1000) % 3 == 1).astype(np.int64)
    vectors = vectors[: len(labels)]
    scores = np.full((len(queries), 1000), -np.inf, dtype=np.float32)
    scores[:, labels] = exact_products(vectors, queries)
    assert_same(InnerProductIndex(vectors, labels).top(queries, k), top_of_scores(scores, k))


def on_gpu(vectors: np.ndarray) -> InnerProductIndex:
    return InnerProductIndex(vectors, all_labels(vectors), device="cuda")


@pytest.mark.parametrize(
    ("size", "query_size"), [(1e-24, 1e10), (1e-25, 1e17), (1e-30, 1.0), (1e-38, 1e-5)]
)
@pytest.mark.parametrize("seed", range(15))
def test_tiny_vectors_are_ranked_exactly(size, query_size, seed):
    """Their squares are no float32 numbers, nor, in the last cases, are their products."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=DIM)
    vectors = (common + 1e-7 * rng.normal(size=(2000, DIM))) * size
    queries = rng.normal(size=(2, DIM)) * query_size
    vectors, queries = vectors.astype(np.float32), queries.astype(np.float32)
    found = InnerProductIndex(vectors, all_labels(vectors)).top(queries, 5)
    assert_same(found, top_of_scores(exact_products(vectors, queries), 5))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_products_of_queries_that_are_not_finite_are_refused(bad):
    vectors, queries = plain()
    queries[3] = bad
    index = InnerProductIndex(vectors, all_labels(vectors))
    for ask in (lambda: index.top(queries, 3), lambda: index.scores(queries)):
        with pytest.raises(DataError, match=r"1 \(the first in row 3\) of 20 text vectors"):
            ask()


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr("longtail.models.ranking.index.sees_gpu", lambda: False)
    vectors = np.ones((2, 1), dtype=np.float32)
    with pytest.raises(ConfigError, match=r"device 'cuda': PyTorch sees no GPU; .* 'cpu'"):
        InnerProductIndex(vectors, all_labels(vectors), device="cuda")
    assert InnerProductIndex(vectors, all_labels(vectors), device="auto").device.type == "cpu"


@pytest.mark.gpu
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("k", [1, 10, 499, 500, 510])
def test_top_on_a_gpu_is_a_full_sort_of_the_exact_products(problem, k):
    vectors, queries = problem()
    index = on_gpu(vectors)
    assert index.device.type == "cuda"
    assert_same(index.top(queries, k), top_of_scores(exact_products(vectors, queries), k))


@pytest.mark.gpu
def test_a_ranking_on_a_gpu_is_exact_beyond_its_most_results():
    vectors = np.repeat(random(0, 5, DIM), 3000, axis=0)
    queries = random(1, 3, DIM)
    index = InnerProductIndex(vectors, all_labels(vectors), device="cuda")
    assert_same(index.top(queries, 2500), top_of_scores(exact_products(vectors, queries), 2500))
