"""Documents are chosen as the plain greedy choice by brute force has it."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.models.selection.choice import choose, similar_documents
from longtail.models.selection.pool import Pool


def pool_of(rng: np.random.Generator, num_documents: int, num_features: int = 12) -> Pool:
    """Documents of random features, some of them equal, some without any."""
    values = rng.random((num_documents, num_features)) * (
        rng.random((num_documents, num_features)) < 0.3
    )
    values[1::4] = values[::4][: len(values[1::4])]
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    rows = np.divide(values, norms, out=np.zeros_like(values), where=norms > 0)
    return Pool(
        features=csr_array(rows.astype(np.float32)),
        uncertainties=rng.random(num_documents),
        rare_labels=rng.random(num_documents) * (rng.random(num_documents) < 0.5),
        covered=(0.5 * rng.random(num_documents)).astype(np.float32),
        labels=np.zeros((num_documents, 1), dtype=np.int64),
        probabilities=np.zeros((num_documents, 1), dtype=np.float32),
    )


def cosines(pool: Pool, num_nearest: int) -> np.ndarray:
    """Cosine of each document (row) to those that it may stand for (columns), else 0."""
    dense = pool.features.toarray().astype(np.float64)
    products = (dense @ dense.T).astype(np.float32)
    found = np.zeros_like(products)
    for u, row in enumerate(products):
        nearest = sorted(range(len(row)), key=lambda d: (-row[d], d))[:num_nearest]
        found[nearest, u] = row[nearest]
    return found


def value(pool: Pool, similar: np.ndarray, copies: np.ndarray, chosen: list[int]) -> float:
    """F of a set of documents, as its definition has it."""
    covered = np.maximum(pool.covered, similar[chosen].max(axis=0, initial=0))
    return float((pool.uncertainties * copies * covered).sum())


def greedy(pool: Pool, similar: np.ndarray, copies: np.ndarray, number: int) -> list[int]:
    """The choice without a heap: every document is looked at every time."""
    chosen: list[int] = []
    while len(chosen) < number:
        before = value(pool, similar, copies, chosen)
        left = [d for d in range(len(pool)) if d not in chosen]
        gains = [value(pool, similar, copies, [*chosen, d]) - before for d in left]
        if max(gains, default=0.0) <= 1e-12:
            break
        chosen.append(left[int(np.argmax(gains))])
    return chosen


@given(seed=st.integers(0, 10**6), num_nearest=st.sampled_from([2, 5, 40]))
@settings(max_examples=30, deadline=None)
def test_the_choice_is_the_greedy_one(seed, num_nearest):
    rng = np.random.default_rng(seed)
    pool, copies = pool_of(rng, 24), rng.integers(1, 4, 24)
    similar = similar_documents(pool.features, num_nearest)
    found = choose(pool, similar, copies, 24)
    expected = greedy(pool, similar.toarray(), copies, 24)
    numbers = [each.document for each in found]
    values = [
        [value(pool, similar.toarray(), copies, some[: place + 1]) for place in range(len(some))]
        for some in (numbers, expected)
    ]
    assert len(numbers) == len(expected)
    assert values[0] == pytest.approx(values[1], rel=1e-6)  # equal gains may swap documents
    gains = np.diff([value(pool, similar.toarray(), copies, []), *values[0]])
    assert [each.gain for each in found] == pytest.approx(gains.tolist(), abs=1e-5)
    assert all(a.gain >= b.gain - 1e-6 for a, b in pairwise(found))


@pytest.mark.parametrize("num_nearest", [1, 3, 50])
def test_similar_documents_are_the_nearest_of_each(num_nearest):
    pool = pool_of(np.random.default_rng(0), 30)
    found = similar_documents(pool.features, num_nearest)
    assert found.toarray() == pytest.approx(cosines(pool, num_nearest), abs=1e-6)


def test_few_documents_reach_most_of_what_the_best_set_has():
    pool = pool_of(np.random.default_rng(1), 10)
    copies = np.ones(10, dtype=np.int64)
    similar = similar_documents(pool.features).toarray()
    none = value(pool, similar, copies, [])
    chosen = [x.document for x in choose(pool, csr_array(similar), copies, 3)]
    best = max(value(pool, similar, copies, list(x)) for x in combinations(range(10), 3))
    assert value(pool, similar, copies, chosen) - none >= (1 - 1 / np.e) * (best - none)


def test_a_document_is_not_chosen_beside_its_equal_and_says_which_is_nearest():
    rows = np.array([[1, 0], [1, 0], [0.6, 0.8], [0, 0]], dtype=np.float32)
    pool = Pool(
        csr_array(rows), np.array([1.0, 1.0, 0.5, 9.0]), np.zeros(4), np.zeros(4, np.float32),
        np.zeros((4, 1), np.int64), np.zeros((4, 1), np.float32),
    )  # fmt: skip
    found = choose(pool, similar_documents(pool.features), np.ones(4, dtype=np.int64), 4)
    assert [each.document for each in found] == [0, 2]  # no word of the last one is known
    assert (found[0].nearest, found[1].nearest) == (None, 0)
    assert found[1].similarity == pytest.approx(0.6)
    assert [each.gain for each in found] == pytest.approx([2.3, 0.2])


def test_a_share_is_for_rare_labels():
    pool = pool_of(np.random.default_rng(2), 40)
    similar, copies = similar_documents(pool.features), np.ones(40, dtype=np.int64)
    found = choose(pool, similar, copies, 12, rare_share=0.25)
    assert [each.for_rare_labels for each in found] == 3 * [False, False, False, True]
    before = [each.document for each in found[:3]]
    covered = np.maximum(pool.covered, similar.toarray()[before].max(axis=0))
    values = pool.rare_labels * (1 - covered)
    values[before] = 0
    assert found[3].document == int(values.argmax())
    assert not any(x.for_rare_labels for x in choose(pool, similar, copies, 12))
    assert len({each.document for each in found}) == 12
