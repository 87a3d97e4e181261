"""The kernels' search and sample, against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, stats
from scipy.sparse import csr_array

from longtail.training.sparse.coordinate_descent import Rows, new_scratch, sample, search

NUM_DOCUMENTS, NUM_FEATURES = 60, 25
POSITIVE = np.uint8(1)


def random_features(seed: int) -> csr_array:
    rng = np.random.default_rng(seed)
    shape = (NUM_DOCUMENTS, NUM_FEATURES)
    return csr_array(sparse.random_array(shape, density=0.2, rng=rng, dtype=np.float32))


def index_of(features: csr_array) -> Rows:
    index = csr_array(features.T)
    squares = np.zeros(index.shape[0], dtype=np.float32)
    return Rows(index.indptr.astype(np.int64), index.indices.view(np.uint32), index.data, squares)


@given(
    seed=st.integers(0, 10_000),
    wanted=st.integers(0, NUM_DOCUMENTS),
    above=st.sampled_from([0.0, -0.5]),
)
def test_search_finds_the_documents_of_highest_score(seed, wanted, above):
    rng = np.random.default_rng(seed)
    features = random_features(seed)
    weights = rng.normal(size=NUM_FEATURES).astype(np.float32)
    positives = rng.choice(NUM_DOCUMENTS, size=5, replace=False)
    scratch = new_scratch(NUM_DOCUMENTS, NUM_FEATURES)
    scratch.weights[:-1] = weights
    scratch.kind[positives] = POSITIVE
    everything = np.arange(NUM_FEATURES, dtype=np.int32)
    found = search(
        index_of(features), everything, np.float32(0.3), np.float32(above), wanted, 10**9, scratch
    )

    kept = np.where(np.abs(weights) >= 0.3, weights, 0)
    scores = features @ kept
    scores[positives] = -np.inf
    is_reached = (abs(features) @ np.abs(kept)) > 0
    candidates = np.flatnonzero((scores > above) & is_reached)
    assert len(set(found)) == len(found) == min(wanted, len(candidates))
    assert set(found) <= set(candidates)
    left_out = np.setdiff1d(candidates, found)
    if len(found) and len(left_out):
        assert scores[found].min() >= scores[left_out].max() - 1e-5
    assert not scratch.scores.any()


def test_search_reads_the_heaviest_features_until_its_budget_is_spent():
    features = random_features(0)
    scratch = new_scratch(NUM_DOCUMENTS, NUM_FEATURES)
    scratch.weights[:-1] = np.linspace(1, 2, NUM_FEATURES)
    sizes = np.diff(csr_array(features.T).indptr)
    budget = int(sizes[-1] + sizes[-2])
    everything = np.arange(NUM_FEATURES, dtype=np.int32)
    found = search(
        index_of(features), everything, np.float32(0), np.float32(0), 100, budget, scratch
    )
    heaviest = features[:, [NUM_FEATURES - 1, NUM_FEATURES - 2]]
    assert set(found) == set(np.flatnonzero(heaviest.sum(axis=1)))


@pytest.mark.parametrize("wanted", [5, 40])  # few of the rest are drawn, many are dealt
def test_samples_are_uniform_over_the_documents_not_in_the_set(wanted):
    chosen = np.arange(0, NUM_DOCUMENTS, 6)
    times = np.zeros(NUM_DOCUMENTS)
    for seed in range(2000):
        kind = np.zeros(NUM_DOCUMENTS, dtype=np.uint8)
        kind[chosen] = POSITIVE
        rows = np.empty(NUM_DOCUMENTS, dtype=np.int32)
        rows[: len(chosen)] = chosen
        random = np.array([seed * 7919], dtype=np.uint64)
        size = sample(rows, len(chosen), kind, wanted, random)
        drawn = rows[len(chosen) : size]
        assert len(set(drawn)) == wanted
        times[drawn] += 1
    assert not times[chosen].any()
    rest = np.setdiff1d(np.arange(NUM_DOCUMENTS), chosen)
    # Without replacement the counts vary less than a multinomial's: the test is on the safe side.
    assert stats.chisquare(times[rest]).pvalue > 0.01


def test_a_sample_larger_than_the_rest_is_the_rest():
    kind = np.zeros(NUM_DOCUMENTS, dtype=np.uint8)
    rows = np.empty(NUM_DOCUMENTS, dtype=np.int32)
    random = np.array([1], dtype=np.uint64)
    assert sample(rows, 0, kind, 10 * NUM_DOCUMENTS, random) == NUM_DOCUMENTS
    assert sorted(rows) == list(range(NUM_DOCUMENTS))
