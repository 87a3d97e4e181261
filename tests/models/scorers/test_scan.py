"""The pass over all labels against the Threshold Algorithm and a full sort, to the bit."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.models.bundle.manifest import Calibration, RarityBlend
from longtail.models.labels.selection import Selection
from longtail.models.memory.memory import NeighbourMemory
from longtail.models.memory.search import nearest_documents
from longtail.models.memory.source import NeighbourSource
from longtail.models.ranking.threshold_algorithm import rank, rank_given
from longtail.models.ranking.top_k import ListedSource
from longtail.models.scorers.blending import DialledBlend, FittedBlend
from longtail.models.scorers.scan import scan
from longtail.models.scorers.sparse import SparseModel, SparseSource, all_sums
from longtail.models.scorers.tfidf import TfidfModel

NUM_LABELS, NUM_FEATURES, NUM_TEXTS = 90, 12, 5
CURVES = (
    Calibration(knots=(-0.5, 1.0, 2.0), slopes=(0.5, 2.0, 0.0, 1.0), intercept=-1.0),
    Calibration(knots=(0.0,), slopes=(1.0, 1.0), intercept=0.0),
)


def sparse_of(rng: np.random.Generator, is_tied: bool) -> SparseSource:
    tfidf = TfidfModel([f"t{x}" for x in range(NUM_FEATURES)], np.ones(NUM_FEATURES, np.float32))
    labels = np.sort(rng.permutation(NUM_LABELS)[: rng.integers(1, NUM_LABELS)])
    weights = rng.normal(size=(len(labels), NUM_FEATURES)) * (rng.random((1, NUM_FEATURES)) < 0.5)
    bias = rng.normal(size=len(labels))
    if is_tied:
        weights, bias = np.round(weights), np.round(bias)
    model = SparseModel.of_rows(
        tfidf, csr_array(weights.astype(np.float32)), bias.astype(np.float32), labels
    )
    features = rng.random((NUM_TEXTS, NUM_FEATURES)).round(1).astype(np.float32)
    return SparseSource(model, csr_array(features))


def with_sums_in_other_places(source: SparseSource, rng: np.random.Generator) -> SparseSource:
    rows = rng.permutation(NUM_TEXTS)
    sums = all_sums(source._model, source._features.take(rows), 2)
    return SparseSource(source._model, source._features, sums=sums.take(np.argsort(rows)))


def listed_of(rng: np.random.Generator) -> ListedSource:
    is_there = rng.random((NUM_TEXTS, NUM_LABELS)) < 0.1
    rows, columns = is_there.nonzero()
    scores = rng.normal(size=len(rows)).round(1).astype(np.float32)
    starts = np.searchsorted(rows, np.arange(NUM_TEXTS + 1))
    return ListedSource(csr_array((scores, columns, starts), shape=is_there.shape))


def neighbours_of(rng: np.random.Generator, source: SparseSource) -> NeighbourSource:
    features = rng.random((20, NUM_FEATURES)).astype(np.float32)
    carried = (rng.random((20, NUM_LABELS)) < 0.05).astype(np.float32)
    memory = NeighbourMemory.of_documents(
        csr_array(features), csr_array(carried), [f"{x}" for x in range(20)],
        num_neighbours=4, temperature=0.5,
    )  # fmt: skip
    return NeighbourSource(memory, nearest_documents(memory, source._features, 4))


def blend_of(rng: np.random.Generator, members: tuple[str, ...]) -> FittedBlend:
    counts = (0, 1, 10, 100)
    weights = {x: tuple(np.round(rng.random(4) * 2, 1).tolist()) for x in members}
    floors = {x: float(np.round(-5 * rng.random(), 1)) for x in members}
    below = {x: tuple(np.round(rng.random(4), 1).tolist()) for x in members[: rng.integers(3)]}
    bends = (-2.0, 0.5)[: rng.integers(3)]
    rows = np.round(0.1 + rng.random((len(bends) + 2, 4)), 1).tolist() if bends else [()]
    level, *slopes = map(tuple, rows)
    fitted = RarityBlend(
        counts, tuple(rng.normal(size=4).tolist()), weights, floors, below, bends, level,
        tuple(slopes),
    )  # fmt: skip
    shares = 1 + rng.integers(0, 4, NUM_LABELS)
    return FittedBlend(
        fitted,
        [CURVES[rng.integers(2)] for _ in members],
        rng.choice([0, 1, 2, 10, 40, 1000], NUM_LABELS),
        np.log(shares / shares.sum()).astype(np.float32),
    )


@pytest.fixture(autouse=True)
def scans_few():
    with mock.patch("longtail.models.ranking.top_k._ALWAYS_UP_TO", 0):
        yield


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.sampled_from([1, 2, 5, 30, NUM_LABELS]),
    dial=st.sampled_from([0.0, 0.0, 0.7, 25.0]),
    is_tied=st.booleans(),
    is_filtered=st.booleans(),
    max_kept=st.sampled_from([0, 2**24]),
    is_shared=st.booleans(),
)
def test_it_ranks_as_the_threshold_algorithm_and_a_full_sort(
    seed, k, dial, is_tied, is_filtered, max_kept, is_shared
):
    rng = np.random.default_rng(seed)
    with mock.patch("longtail.models.scorers.sparse.MAX_KEPT", max_kept):
        sparse = sparse_of(rng, is_tied)
    scorers = [[sparse], [listed_of(rng)], [neighbours_of(rng, sparse)]]
    combine = DialledBlend.of(blend_of(rng, ("sparse", "names", "neighbours")), dial)
    selection = Selection(rng.random(NUM_LABELS) < 0.4) if is_filtered else None
    if is_shared:
        scorers[0] = [with_sums_in_other_places(sparse, rng)]
    with mock.patch("longtail.models.ranking.top_k._ROWS_A_PART", 2):
        found = scan(scorers, combine, k, NUM_LABELS, selection)
    assert found is not None
    labels = np.arange(NUM_LABELS) if selection is None else selection.labels
    for wanted in (
        rank(scorers, combine, k, NUM_LABELS, selection),
        rank([[sparse], *scorers[1:]], combine, k, NUM_LABELS, selection),
        rank_given(scorers, combine, k, labels),
    ):
        np.testing.assert_array_equal(found.labels, wanted.labels)
        np.testing.assert_array_equal(found.scores, wanted.scores)


def test_it_leaves_the_rest_to_the_threshold_algorithm():
    rng = np.random.default_rng(0)
    sparse, names = sparse_of(rng, False), listed_of(rng)
    combine = DialledBlend.of(blend_of(rng, ("sparse", "names")), 0.0)
    assert scan([[sparse], [sparse]], combine, 3, NUM_LABELS) is None
    assert scan([[names], [names]], combine, 3, NUM_LABELS) is None
    assert scan([[sparse, names], [names]], combine, 3, NUM_LABELS) is None
    assert scan([[sparse], [names]], combine, 3, NUM_LABELS) is not None
