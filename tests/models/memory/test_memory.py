"""A memory of documents: the nearest of them, their labels, and more documents without training."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.models.errors import BundleCorruptError
from longtail.models.memory.memory import NeighbourMemory
from longtail.models.memory.search import NO_DOCUMENT, Neighbours, nearest_documents
from longtail.models.memory.source import NeighbourSource
from longtail.models.ranking.top_k import NO_LABEL
from tests.closeness import assert_all_close

NUM_FEATURES = 60
NUM_LABELS = 12


def features_of(rng: np.random.Generator, num_rows: int, *, is_whole: bool = False) -> csr_array:
    """Return rows of a few common features and many rare ones, some of them empty."""
    shares = 1 / (1 + np.arange(NUM_FEATURES))
    values = rng.integers(1, 3, (num_rows, NUM_FEATURES)) if is_whole else rng.random(
        (num_rows, NUM_FEATURES)
    )  # fmt: skip
    rows = (values * (rng.random((num_rows, NUM_FEATURES)) < shares)).astype(np.float32)
    if not is_whole:
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return csr_array(rows)


def memory_of(
    rng: np.random.Generator,
    num_documents: int = 80,
    *,
    is_whole: bool = False,
    num_neighbours: int = 10,
) -> NeighbourMemory:
    carried = rng.random((num_documents, NUM_LABELS - 1)) < 0.2
    carried[:, 0] |= ~carried.any(axis=1)
    truth = np.pad(carried, ((0, 0), (0, 1))).astype(np.float32)  # nobody carries the last label
    return NeighbourMemory.of_documents(
        features_of(rng, num_documents, is_whole=is_whole),
        csr_array(truth),
        [f"d{number}" for number in range(num_documents)],
        num_neighbours=num_neighbours,
        temperature=0.1,
    )


def nearest_by_hand(
    memory: NeighbourMemory, queries: csr_array, k: int
) -> list[list[tuple[int, np.float32]]]:
    """All products in float64, in a plain sort."""
    products = queries.toarray().astype(np.float64) @ memory.documents.to_csr().toarray().T
    rows = []
    for row in products.astype(np.float32):
        order = sorted(
            np.flatnonzero(row).tolist(), key=lambda document: (-row[document], document)
        )
        rows.append([(document, row[document]) for document in order[:k]])
    return rows


def labels_by_hand(memory: NeighbourMemory, neighbours: Neighbours, row: int) -> dict[int, float]:
    """The score of each label that a neighbour carries, by the formula."""
    documents = [d for d in neighbours.documents[row].tolist() if d != NO_DOCUMENT]
    weights = np.exp(neighbours.similarities[row, : len(documents)] / memory.temperature)
    truth = memory.labels.toarray()
    return {
        label: float(np.log(weights[truth[documents, label] > 0].sum() / weights.sum()))
        for label in range(NUM_LABELS)
        if truth[documents, label].any()
    }


@settings(max_examples=60)
@given(seed=st.integers(0, 2**16), k=st.integers(1, 90), num_documents=st.integers(1, 90))
def test_the_nearest_documents_are_those_of_all_products(seed, k, num_documents):
    """Whole numbers have exact products, so that many documents tie."""
    rng = np.random.default_rng(seed)
    memory = memory_of(rng, num_documents, is_whole=True)
    queries = features_of(rng, 9, is_whole=True)
    found = nearest_documents(memory, queries, k)
    for row, wanted in enumerate(nearest_by_hand(memory, queries, k)):
        size = len(wanted)
        assert found.documents[row, :size].tolist() == [document for document, _ in wanted]
        assert found.similarities[row, :size].tolist() == [product for _, product in wanted]
        assert (found.documents[row, size:] == NO_DOCUMENT).all()
        assert not found.similarities[row, size:].any()


@pytest.mark.parametrize("k", [1, 5, 40])
def test_rounded_products_change_no_neighbour(k):
    """In a memory so large that long postings are left out."""
    rng = np.random.default_rng(k)
    memory, queries = memory_of(rng, 3000), features_of(rng, 50)
    found = nearest_documents(memory, queries, k)
    products = queries.toarray().astype(np.float64) @ memory.documents.to_csr().toarray().T
    wanted = -np.sort(-products, axis=1)[:, :k]
    assert_all_close(found.similarities, wanted, rtol=1e-6)
    own = np.take_along_axis(products, np.maximum(found.documents, 0), axis=1)
    np.testing.assert_allclose(found.similarities, own, rtol=1e-6, atol=1e-12)
    assert all(len({*row}) == k for row in found.documents.tolist() if NO_DOCUMENT not in row)


def test_neighbours_are_the_same_in_every_batch_and_by_any_number_of_threads():
    rng = np.random.default_rng(3)
    memory, queries = memory_of(rng, 500), features_of(rng, 200)
    together = nearest_documents(memory, queries, 7, num_threads=3)
    alone = Neighbours.joined([nearest_documents(memory, queries[[i]], 7) for i in range(200)])
    for found in (alone, nearest_documents(memory, queries, 7)):
        np.testing.assert_array_equal(found.documents, together.documents)
        np.testing.assert_array_equal(found.similarities, together.similarities)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**16), m=st.integers(1, NUM_LABELS))
def test_labels_are_ranked_by_the_shares_of_their_documents(seed, m):
    rng = np.random.default_rng(seed)
    memory, queries = memory_of(rng), features_of(rng, 6)
    neighbours = nearest_documents(memory, queries, memory.num_neighbours)
    source = NeighbourSource(memory, neighbours)
    rows = np.array([4, 0, 5], dtype=np.int64)
    ranking = source.top(rows, m)
    every_label = np.tile(np.arange(NUM_LABELS, dtype=np.int64), (3, 1))
    scores = source.score(rows, every_label)
    for place, row in enumerate(rows.tolist()):
        wanted = labels_by_hand(memory, neighbours, row)
        assert set(np.flatnonzero(np.isfinite(scores[place]))) == set(wanted)
        np.testing.assert_allclose(
            scores[place, sorted(wanted)], [wanted[label] for label in sorted(wanted)], atol=1e-5
        )
        order = sorted(wanted, key=lambda label: (-scores[place, label], label))[:m]
        assert ranking.labels[place, : len(order)].tolist() == order
        assert (ranking.labels[place, len(order) :] == NO_LABEL).all()
    found = source.score(rows, ranking.labels)
    np.testing.assert_array_equal(found, ranking.scores)  # to the bit, and -inf for NO_LABEL


def test_what_raises_a_label_is_added_to_its_score_if_it_has_one():
    rng = np.random.default_rng(6)
    memory, queries = memory_of(rng), features_of(rng, 4)
    neighbours = nearest_documents(memory, queries, 10)
    raised = rng.random(NUM_LABELS)
    rows = np.arange(4)
    every_label = np.tile(np.arange(NUM_LABELS, dtype=np.int64), (4, 1))
    plain = NeighbourSource(memory, neighbours).score(rows, every_label)
    source = NeighbourSource(memory, neighbours, raised)
    assert_all_close(source.score(rows, every_label), plain + raised, rtol=1e-5)
    ranking = source.top(rows, NUM_LABELS)
    np.testing.assert_array_equal(source.score(rows, ranking.labels), ranking.scores)


def with_value(name: str, place: int, value: float) -> Callable[[dict[str, np.ndarray]], None]:
    def spoil(arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = arrays[name].copy()
        arrays[name][place] = value

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (with_value("data", 0, -1), "data has values that are not finite or below 0"),
        (with_value("data", 0, np.nan), "data has values that are not finite"),
        (with_value("num_neighbours", 0, 0), "num_neighbours has the value 0, expected 1"),
        (with_value("temperature", 0, np.nan), "temperature has values that are not finite"),
        (with_value("indices", 0, NUM_FEATURES), "indices are not all from 0"),
        (with_value("labels", 0, NUM_LABELS), "labels are not all from 0"),
        (with_value("labels", 0, 10), "labels do not rise in each row"),
    ],
)
def test_a_memory_of_broken_arrays_is_refused(spoil, message):
    rng = np.random.default_rng(12)
    memory = memory_of(rng)
    truth = memory.labels.toarray()
    truth[0] = 1
    arrays = replace(memory, labels=csr_array(truth)).to_arrays()
    spoil(arrays)
    with pytest.raises((BundleCorruptError, ValueError), match=message):
        NeighbourMemory.from_arrays(arrays, memory.ids_to_json(), NUM_FEATURES, NUM_LABELS)
