"""The search for hard negatives and the sample of the rest, against brute force.

Every document has a column of its own, which no search reads, and errors cost next to nothing: so
the columns with a weight tell which documents a label was trained on.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, stats
from scipy.sparse import csr_array

from longtail.training.sparse.coordinate_descent import Plan, Rows, fit_chunk

NUM_DOCUMENTS, NUM_FEATURES = 60, 25


def random_features(seed: int, weights: np.ndarray) -> csr_array:
    """Random documents; the first has these weights, so it is what a search for it looks for."""
    rng = np.random.default_rng(seed)
    shape = (NUM_DOCUMENTS, NUM_FEATURES)
    features = sparse.random_array(shape, density=0.2, rng=rng, dtype=np.float32).toarray()
    features[0] = weights
    return csr_array(features)


def rows_of(matrix: csr_array) -> Rows:
    squares = (matrix**2).sum(axis=1).astype(np.float32)
    indptr = matrix.indptr.astype(np.int64)
    return Rows(indptr, matrix.indices, matrix.data, squares, matrix.shape[1])


def trained_on(
    features: csr_array, positives: np.ndarray, num_labels: int = 1, **plan: float
) -> list[np.ndarray]:
    """Return the documents that each of some equal labels is trained on beside its own."""
    own_columns = sparse.eye_array(NUM_DOCUMENTS, dtype=np.float32)
    by_document = csr_array(sparse.hstack([features, own_columns]), dtype=np.float32)
    by_feature = csr_array(sparse.vstack([features.T, csr_array((NUM_DOCUMENTS,) * 2)]))
    by_label = np.zeros((num_labels, NUM_DOCUMENTS), dtype=np.float32)
    by_label[:, positives] = 1
    matrices = [by_document, csr_array(by_feature, dtype=np.float32), csr_array(by_label)]
    names = [x for x in Plan._fields if x.startswith(("hard", "sampled", "postings"))]
    costs = {"cost": 1e-6, "rare_cost": 1e-6}
    given = costs | {"is_hinge": True, "prune_below": 0, "rounds": 1, "seed": 3}
    starts, columns, _, _ = fit_chunk(
        *map(rows_of, matrices),
        np.arange(num_labels),
        Plan(**dict.fromkeys(names, 0) | given | plan),
    )
    return [
        np.setdiff1d(some[some >= NUM_FEATURES] - NUM_FEATURES, positives)
        for some in np.split(columns, starts[1:-1])
    ]


@given(seed=st.integers(0, 10_000), wanted=st.integers(0, NUM_DOCUMENTS))
def test_search_finds_the_documents_of_highest_score(seed, wanted):
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=NUM_FEATURES).astype(np.float32)
    weights[::5] *= 0.001  # too small to play a part
    features = random_features(seed, weights)
    [found] = trained_on(features, np.array([0]), hard_negatives=wanted, postings=10**9)

    kept = np.where(np.abs(weights) >= 0.02, weights, 0)
    scores = features @ kept
    scores[0] = -np.inf
    candidates = np.flatnonzero(scores > 0)
    assert len(found) == min(wanted, len(candidates))
    assert set(found) <= set(candidates)
    left_out = np.setdiff1d(candidates, found)
    if len(found) and len(left_out):
        assert scores[found].min() >= scores[left_out].max() - 1e-5


def test_search_reads_the_heaviest_features_until_its_budget_is_spent():
    features = random_features(0, np.linspace(1, 2, NUM_FEATURES))
    sizes = np.diff(csr_array(features.T).indptr)
    budget = int(sizes[-1] + sizes[-2])
    [found] = trained_on(features, np.array([0]), hard_negatives=100, postings=budget)
    heaviest = features[:, [NUM_FEATURES - 1, NUM_FEATURES - 2]]
    assert set(found) == set(np.flatnonzero(heaviest.sum(axis=1))) - {0}


def test_of_equal_weights_the_smaller_feature_is_read_first():
    features = random_features(0, np.ones(NUM_FEATURES))
    budget = int(np.diff(csr_array(features.T).indptr)[0])
    [found] = trained_on(features, np.array([0]), hard_negatives=100, postings=budget)
    assert set(found) == set(features[:, [0]].nonzero()[0]) - {0}


@pytest.mark.parametrize("wanted", [5, 40])  # few of the rest are drawn, many are dealt
def test_samples_are_uniform_over_the_documents_not_in_the_set(wanted):
    features = random_features(0, np.ones(NUM_FEATURES))
    positives = np.arange(0, NUM_DOCUMENTS, 6)
    times = np.zeros(NUM_DOCUMENTS)
    for drawn in trained_on(features, positives, num_labels=2000, sampled_negatives=wanted):
        assert len(drawn) == wanted
        times[drawn] += 1
    rest = np.setdiff1d(np.arange(NUM_DOCUMENTS), positives)
    # Without replacement the counts vary less than a multinomial's: the test is on the safe side.
    assert stats.chisquare(times[rest]).pvalue > 0.01
