"""The multi-label reduction against a double loop."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.stats import chisquare

from longtail.models.errors import DataError
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.learning.sampling import make_pairs, pairs_at
from research.experiments.bow_models import one_label_each, pair_batches

LABELS = [[1, 4], [], [0, 2, 5], [2]]
label_lists = st.lists(st.sets(st.integers(0, 7), max_size=6).map(sorted), min_size=1, max_size=9)


def truth_of(labels: list[list[int]], num_labels: int = 8) -> csr_array:
    dense = np.zeros((len(labels), num_labels), dtype=np.float32)
    for row, carried in enumerate(labels):
        dense[row, carried] = 1
    return csr_array(dense)


@given(label_lists, st.integers(1, 7), st.randoms(use_true_random=False))
def test_batches_hold_every_pair_once_in_the_order_of_the_documents(labels, batch_size, random):
    order = list(range(len(labels)))
    random.shuffle(order)
    batches = list(pair_batches(truth_of(labels), np.array(order), batch_size))
    found = [pair for batch in batches for pair in zip(*(x.tolist() for x in batch), strict=True)]
    assert found == [(document, label) for document in order for label in labels[document]]
    assert all(len(documents) == batch_size for documents, _ in batches[:-1])


@given(label_lists)
def test_numbered_pairs_are_those_of_a_double_loop(labels):
    expected = [(document, label) for document, x in enumerate(labels) for label in x]
    numbers = np.arange(len(expected))[::-1].copy()
    documents, found = pairs_at(truth_of(labels), numbers)
    assert list(zip(documents.tolist(), found.tolist(), strict=True)) == expected[::-1]


def test_one_label_of_each_document_is_uniform_over_its_labels():
    documents = np.repeat([2, 0, 3], 3000)
    drawn = one_label_each(truth_of(LABELS), documents, np.random.default_rng(0))
    counts = np.bincount(drawn[:3000], minlength=8)
    assert counts[[1, 3, 4, 6, 7]].sum() == 0
    assert chisquare(counts[[0, 2, 5]]).pvalue > 0.01
    assert set(drawn[3000:6000]) == {1, 4}
    assert set(drawn[6000:]) == {2}


def test_a_document_without_labels_gives_no_pair_and_is_refused_where_one_is_wanted():
    with pytest.raises(DataError, match="document 1 has no label"):
        one_label_each(truth_of(LABELS), np.array([0, 1]), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("exclude", "excluded"),
    [
        ("none", [[], []]),
        ("positive", [[5], [2]]),
        ("document", [[0, 2, 5], [2, NO_LABEL, NO_LABEL]]),
    ],
)
def test_pairs_exclude_what_is_asked(exclude, excluded):
    pairs = make_pairs(truth_of(LABELS), np.array([2, 3]), np.array([5, 2]), exclude, "cpu")
    assert pairs.documents.tolist() == [2, 3]
    assert pairs.labels.tolist() == [5, 2]
    assert pairs.excluded.tolist() == excluded
