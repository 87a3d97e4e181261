"""Documents by their vectors: bytes, the nearest of them, files; against brute force."""

import json
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.models.errors import BundleCorruptError
from longtail.models.kinds.neighbours import DenseNeighboursScorer
from longtail.models.memory import device_vectors
from longtail.models.memory.device_vectors import DeviceVectors
from longtail.models.memory.search import NO_DOCUMENT
from longtail.models.memory.source import NeighbourSource
from longtail.models.memory.vectors import ByteVectors, VectorMemory
from longtail.models.parts.batches import TextBatch
from longtail.training.memory import vectors as remembered
from longtail.training.memory.vectors import LEAST_RECALL, clustered


def brute_force(rows, queries, k):
    """All products as whole numbers, each scaled and rounded once; ties by the smaller number."""
    products = queries.bytes.astype(np.int64) @ rows.bytes.T.astype(np.int64)
    scales = queries.scales[:, None].astype(np.float64) * rows.scales
    scores = (products * scales).astype(np.float32)
    order = np.lexsort((np.broadcast_to(np.arange(rows.num_rows), scores.shape), -scores), axis=1)
    return order[:, :k], np.take_along_axis(scores, order[:, :k], axis=1)


def vectors_of(kind, rng, size, dim):
    drawn = rng.normal(size=(size, dim)).astype(np.float32)
    made = {
        "random": drawn,
        "equal": np.repeat(drawn[:1], size, axis=0),
        "tiny": drawn * np.float32(1e-30),
        "huge": drawn * np.float32(1e30),
        "zeros": np.where(rng.random((size, 1)) < 0.5, 0, drawn).astype(np.float32),
        "opposite": np.concatenate([drawn[: size // 2], -drawn[: size - size // 2]]),
    }
    return made[kind]


@pytest.mark.parametrize("kind", ["random", "equal", "tiny", "huge", "zeros", "opposite"])
@pytest.mark.parametrize(("size", "dim", "num_queries"), [(1, 1, 1), (300, 7, 9), (90, 384, 130)])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_the_nearest_are_those_of_brute_force_in_any_batch(
    kind, size, dim, num_queries, num_threads
):
    rng = np.random.default_rng(size + dim)
    rows = ByteVectors.rounded(vectors_of(kind, rng, size, dim))
    queries = ByteVectors.rounded(vectors_of(kind, rng, num_queries, dim))
    for k in (1, 5, size):
        documents, similarities = brute_force(rows, queries, min(k, size))
        found = rows.nearest(queries, min(k, size), num_threads=num_threads)
        np.testing.assert_array_equal(found.documents, documents)
        np.testing.assert_array_equal(found.similarities, similarities)
        alone = rows.nearest(queries.take([num_queries - 1]), min(k, size))
        np.testing.assert_array_equal(alone.documents[0], documents[-1])
        np.testing.assert_array_equal(alone.similarities[0], similarities[-1])


@pytest.mark.parametrize("kind", ["random", "equal", "tiny", "huge", "zeros", "opposite"])
@pytest.mark.parametrize(("size", "dim", "num_queries"), [(1, 1, 1), (300, 7, 9), (150, 1100, 13)])
@pytest.mark.parametrize("most", [1, 2000, 2**26])
def test_pytorch_finds_what_the_compiled_loop_finds(
    monkeypatch, kind, size, dim, num_queries, most
):
    monkeypatch.setattr(device_vectors, "_MAX_NUMBERS", most)
    rng = np.random.default_rng(size + dim)
    rows = ByteVectors.rounded(vectors_of(kind, rng, size, dim))
    queries = ByteVectors.rounded(vectors_of(kind, rng, num_queries, dim))
    on_device = DeviceVectors(rows, "cpu")
    for k in (1, 5, 40, size + 2):
        found, wanted = on_device.nearest(queries, k), rows.nearest(queries, k)
        np.testing.assert_array_equal(found.documents, wanted.documents)
        np.testing.assert_array_equal(found.similarities, wanted.similarities)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["random", "equal", "zeros"])
@pytest.mark.parametrize("dim", [7, 384, 1100])
def test_a_gpu_finds_the_documents_that_a_cpu_finds(kind, dim):
    rng = np.random.default_rng(dim)
    rows = ByteVectors.rounded(vectors_of(kind, rng, 20_000, dim))
    queries = ByteVectors.rounded(vectors_of(kind, rng, 70, dim))
    found, wanted = DeviceVectors(rows, "cuda").nearest(queries, 40), rows.nearest(queries, 40)
    np.testing.assert_array_equal(found.documents, wanted.documents)
    np.testing.assert_array_equal(found.similarities, wanted.similarities)


def test_where_there_are_fewer_the_rest_says_so():
    rows = ByteVectors.rounded(np.eye(3, dtype=np.float32))
    found = rows.nearest(rows, 5)
    assert (found.documents[:, 3:] == NO_DOCUMENT).all()
    assert (found.similarities[:, 3:] == 0).all()
    np.testing.assert_array_equal(found.documents[:, 0], [0, 1, 2])


def test_a_cosine_is_off_by_less_than_a_hundredth():
    rng = np.random.default_rng(3)
    drawn = rng.normal(size=(200, 384)).astype(np.float32)
    units = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    rounded = ByteVectors.rounded(drawn)
    found = rounded.nearest(rounded, 200)
    exact = np.take_along_axis((units @ units.T).astype(np.float64), found.documents, axis=1)
    assert np.abs(found.similarities - exact).max() < 0.01


@pytest.fixture
def memory():
    rng = np.random.default_rng(5)
    truth = csr_array((rng.random((30, 6)) < 0.3).astype(np.float32))
    vectors = ByteVectors.rounded(rng.normal(size=(30, 8)).astype(np.float32))
    return VectorMemory(vectors, truth, tuple(f"d{i}" for i in range(30)), 7, 0.1)


def test_a_label_scores_the_share_of_the_neighbours_that_carry_it(memory):
    queries = memory.vectors.take([3, 8])
    found = memory.vectors.nearest(queries, memory.num_neighbours)
    source = NeighbourSource(memory, found)
    labels = np.tile(np.arange(6, dtype=np.int64), (2, 1))
    scores = source.score(np.arange(2, dtype=np.int64), labels)
    weights = np.exp(found.similarities.astype(np.float64) / memory.temperature)
    carried = memory.labels.toarray()[found.documents]  # (query, neighbour, label)
    shares = np.einsum("qn,qnl->ql", weights / weights.sum(axis=1, keepdims=True), carried)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(scores, np.log(shares), rtol=1e-5, atol=1e-6)


def test_what_was_stored_is_read(memory):
    read = VectorMemory.from_arrays(memory.to_arrays(), memory.ids_to_json(), 6)
    np.testing.assert_array_equal(read.vectors.bytes, memory.vectors.bytes)
    np.testing.assert_array_equal(read.labels.toarray(), memory.labels.toarray())
    assert (read.ids, read.num_neighbours, read.temperature) == (memory.ids, 7, 0.1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bytes", np.zeros((29, 8), np.int8)), ("bytes", np.zeros((30, 8), np.float32)),
        ("bytes", np.zeros((30, 2**16 + 1), np.int8)), ("scales", np.full(30, np.nan, np.float32)),
        ("scales", np.full(30, 3e38, np.float32)), ("labels", np.int32(6)),
        ("label_indptr", np.zeros(3, np.int64)), ("num_neighbours", np.zeros(1, np.int64)),
        ("temperature", np.zeros(1)),
    ],
)  # fmt: skip
def test_what_is_damaged_is_refused(memory, name, value):
    if name == "labels":
        value = np.full_like(memory.to_arrays()[name], value)
    with pytest.raises(ValueError, match=name.split("_")[0]):
        VectorMemory.from_arrays(memory.to_arrays() | {name: value}, memory.ids_to_json(), 6)


def test_ids_are_as_many_as_documents(memory):
    with pytest.raises(BundleCorruptError, match="expected 30"):
        VectorMemory.from_arrays(memory.to_arrays(), json.dumps(["one"]), 6)


@pytest.fixture
def divided():
    """Vectors around 20 centres, by cluster."""
    rng = np.random.default_rng(11)
    centres = rng.normal(size=(20, 16))
    drawn = centres[rng.integers(20, size=2000)] + 0.3 * rng.normal(size=(2000, 16))
    vectors = ByteVectors.rounded(drawn.astype(np.float32))
    order, clusters = clustered(vectors)
    return vectors.take(order), order, clusters


def test_clusters_divide_the_vectors_and_find_what_is_asked_of_them(divided):
    vectors, order, clusters = divided
    assert sorted(order.tolist()) == list(range(2000))
    assert clusters.recall >= LEAST_RECALL
    queries = vectors.take(np.arange(0, 2000, 7, dtype=np.int64))
    exact, _ = brute_force(vectors, queries, 40)
    found = clusters.nearest(vectors, queries, 40, num_threads=2)
    shares = [np.isin(*rows).mean() for rows in zip(exact, found.documents, strict=True)]
    assert np.mean(shares) >= LEAST_RECALL - 0.02
    all_probed = replace(clusters, num_probed=clusters.centroids.num_rows)
    whole = all_probed.nearest(vectors, queries, 40)
    np.testing.assert_array_equal(whole.documents, exact)


def test_a_divided_memory_is_read_as_it_was_stored(divided):
    vectors, _, clusters = divided
    truth = csr_array(np.ones((2000, 1), dtype=np.float32))
    memory = VectorMemory(vectors, truth, tuple(map(str, range(2000))), 40, 0.1, clusters)
    read = VectorMemory.from_arrays(memory.to_arrays(), memory.ids_to_json(), 1)
    queries = vectors.take([5, 700])
    np.testing.assert_array_equal(
        read.nearest(queries).documents, memory.nearest(queries).documents
    )
    assert (read.clusters.num_probed, read.clusters.recall) == (
        clusters.num_probed,
        clusters.recall,
    )
    for name, value in (
        ("starts", clusters.starts[::-1].copy()),
        ("starts", clusters.starts[:-1]),
        ("starts", clusters.starts[:0]),
        ("centroid_scales", clusters.centroids.scales[1:]),
        ("num_probed", np.zeros(1, np.int64)),
    ):
        with pytest.raises(ValueError, match=r"starts do not divide|num_probed"):
            VectorMemory.from_arrays(memory.to_arrays() | {name: value}, memory.ids_to_json(), 1)


def test_documents_beyond_the_exact_search_are_divided(monkeypatch):
    monkeypatch.setattr(remembered, "EXACT_UP_TO", 50)
    vectors = np.random.default_rng(2).normal(size=(120, 8)).astype(np.float32)
    truth = csr_array(np.ones((120, 1), dtype=np.float32))
    ids = [f"d{i}" for i in range(120)]
    found = remembered.vector_memory(ByteVectors.rounded(vectors), truth, ids)
    assert found.clusters is not None and sorted(found.ids) == sorted(ids)
    at = [found.ids.index(each) for each in ids]
    stored = found.vectors.bytes[at] * found.vectors.scales[at, None]
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(stored, units, atol=0.01, rtol=0)
    assert found.clusters.starts[-1] == 120


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_the_scorer_searches_where_label_vectors_are_searched(memory, monkeypatch, device):
    monkeypatch.setattr("longtail.models.ranking.index.chosen_device", lambda given: given)
    asked = []
    nearest = DeviceVectors.nearest
    monkeypatch.setattr(
        DeviceVectors, "nearest", lambda *given: asked.append(given[2]) or nearest(*given)
    )
    scorer = DenseNeighboursScorer(memory, np.zeros(6, dtype=np.float32), index_device=device)
    vectors = np.random.default_rng(6).normal(size=(4, 8)).astype(np.float32)
    batch = Mock(spec=TextBatch, vectors=vectors, once=lambda key, find: find())
    found = scorer._nearest(batch)
    wanted = memory.nearest(ByteVectors.rounded(vectors))
    np.testing.assert_array_equal(found.documents, wanted.documents)
    np.testing.assert_array_equal(found.similarities, wanted.similarities)
    assert asked == ([] if device == "cpu" else [7])
