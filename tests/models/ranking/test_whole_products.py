"""Whole numbers propose what brute force finds, within their margins, on every processor."""

import numpy as np
import pytest

from longtail.models.ranking import device_rows
from longtail.models.ranking.device_rows import WholeRows, pays
from longtail.models.ranking.index import InnerProductIndex
from longtail.models.ranking.top_k import products_with_rows, top_of_scores


def random(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def lengths_of(vectors):
    return np.linalg.norm(vectors.astype(np.float64), axis=1)


def exact(queries, vectors):
    return products_with_rows(queries, vectors, np.tile(np.arange(len(vectors)), (len(queries), 1)))


def unlike(num_rows, dim):
    """Rows and columns of very unlike sizes, among them zeros."""
    rng = np.random.default_rng(7)
    vectors = random(0, num_rows, dim) * 10.0 ** rng.integers(-6, 5, (num_rows, 1))
    vectors *= 10.0 ** rng.integers(-3, 3, dim)
    vectors[::7] = 0
    return vectors.astype(np.float32)


SHAPES = [(1, 1), (15, 3), (16, 2), (33, 386), (700, 21), (2000, 8)]


@pytest.mark.parametrize(("num_rows", "dim"), SHAPES)
@pytest.mark.parametrize("scale", [1e-40, 1e-20, 1.0, 1e15])
@pytest.mark.parametrize("make", [lambda *shape: random(1, *shape), unlike])
@pytest.mark.parametrize("block", [1, 2**22])
def test_no_row_left_out_exceeds_what_is_said(monkeypatch, num_rows, dim, scale, make, block):
    monkeypatch.setattr(device_rows, "_BLOCK_NUMBERS", block)
    vectors = (make(num_rows, dim) * np.float32(scale)).astype(np.float32)
    queries = np.concatenate([random(2, 13, dim), vectors[:5], np.zeros((1, dim), np.float32)])
    whole = WholeRows(vectors, float(lengths_of(vectors).max()))
    products = exact(queries, vectors).astype(np.float64)
    for m in {1, min(9, num_rows), num_rows}:
        found = whole.propose(queries, lengths_of(queries), m)
        assert all(len(set(row)) == m and max(row) < num_rows for row in found.rows.tolist())
        for query, (rows, bound) in enumerate(
            zip(found.rows, found.least + found.margins, strict=True)
        ):
            left = np.delete(products[query], rows)
            assert (left <= bound).all()
            assert (products[query][rows] >= found.least[query] - found.margins[query]).all()


def test_margins_are_a_small_part_of_what_a_product_can_be():
    vectors, queries = random(0, 500, 386), random(1, 20, 386)
    longest = lengths_of(vectors).max()
    found = WholeRows(vectors, longest).propose(queries, lengths_of(queries), 5)
    assert (found.margins < 5e-4 * lengths_of(queries) * longest).all()


@pytest.mark.parametrize("num_threads", [2, 3, 50])
@pytest.mark.parametrize("m", [1, 40, 300])
def test_several_threads_propose_the_same(monkeypatch, num_threads, m):
    vectors, queries = random(0, 1001, 21), random(1, 7, 21)
    whole = WholeRows(vectors, float(lengths_of(vectors).max()))
    alone = whole.propose(queries, lengths_of(queries), m)
    monkeypatch.setattr(device_rows, "get_num_threads", lambda: num_threads)
    monkeypatch.setattr(device_rows, "_ALONE", 0)
    found = whole.propose(queries, lengths_of(queries), m)
    np.testing.assert_array_equal(np.sort(found.rows, axis=1), np.sort(alone.rows, axis=1))
    np.testing.assert_array_equal(found.least, alone.least)


@pytest.mark.parametrize("k", [1, 10, 300])
def test_an_index_answers_the_same_with_and_without_them(monkeypatch, k):
    vectors, queries = unlike(900, 33), random(1, 9, 33)
    labels = np.arange(900, dtype=np.int64)
    found = InnerProductIndex(vectors, labels).top(queries, k)
    monkeypatch.setattr("longtail.models.ranking.device_rows.pays", lambda vectors: False)
    other = InnerProductIndex(vectors, labels).top(queries, k)
    wanted = top_of_scores(exact(queries, vectors), k)
    for each in (found, other):
        np.testing.assert_array_equal(each.labels, wanted.labels)
        np.testing.assert_array_equal(each.scores, wanted.scores)


def test_no_margin_holds_where_products_may_overflow():
    vectors, queries = random(0, 200, 5) * np.float32(1e30), random(1, 3, 5) * np.float32(1e10)
    whole = WholeRows(vectors, float(lengths_of(vectors).max()))
    assert np.isinf(whole.propose(queries, lengths_of(queries), 4).margins).all()


def test_what_has_too_many_columns_or_none_stays_in_float32():
    assert not pays(np.zeros((0, 4), dtype=np.float32))
    assert not pays(np.zeros((4, 0), dtype=np.float32))
    assert not pays(np.zeros((1, 2**14 + 1), dtype=np.float32))
    index = InnerProductIndex(np.zeros((0, 4), dtype=np.float32), np.arange(0))
    assert (index.top(random(0, 2, 4), 3).labels < 0).all()


def test_the_largest_components_do_not_overflow():
    vectors = np.full((40, 2**14), -1, dtype=np.float32)
    vectors[1:] *= np.linspace(0.1, 0.9, 39, dtype=np.float32)[:, None]
    found = WholeRows(vectors, 128.0).propose(vectors[:1], np.array([128.0]), 1)
    assert found.rows.tolist() == [[0]]
    assert abs(found.least[0] - 2**14) <= found.margins[0] < 50
