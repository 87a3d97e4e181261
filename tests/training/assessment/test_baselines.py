"""Baselines against dense loops."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.assessment.baselines import label_name_ranking, nearest_neighbour_ranking

BACKGROUND = ["fishing of the sea", "the tax on fish", "trade of the union"]


def normalised(rows: list[list[int]]) -> csr_array:
    dense = np.array(rows, dtype=np.float32)
    return csr_array(dense / np.maximum(np.linalg.norm(dense, axis=1, keepdims=True), 1e-9))


def best_of(scores: dict[int, float], k: int) -> list[int]:
    best = sorted((x for x in scores if scores[x] > 0), key=lambda x: (-scores[x], x))[:k]
    return best + [NO_LABEL] * (k - len(best))


def counts(num_rows: int) -> st.SearchStrategy[list[list[int]]]:
    row = st.lists(st.integers(0, 2), min_size=4, max_size=4)
    return st.lists(row, min_size=num_rows, max_size=num_rows)


@given(counts(6), counts(6), counts(3), st.integers(1, 5), st.integers(1, 7))
def test_nearest_neighbours_equal_a_loop(train, carried, documents, k, num_neighbours):
    # Small whole numbers instead of rows of length 1: float32 adds them exactly, in any order.
    train_features, features = (
        csr_array(np.array(x, dtype=np.float32)) for x in (train, documents)
    )
    labels = csr_array((np.array(carried) == 2).astype(np.float32))
    ranking = nearest_neighbour_ranking(train_features, labels, features, k, num_neighbours)
    cosines = (features @ train_features.T).toarray()
    for row in range(3):
        near = best_of(dict(enumerate(cosines[row].tolist())), num_neighbours)
        votes: Counter[int] = Counter()
        for train_row in near:
            if train_row != NO_LABEL:
                votes.update({x: cosines[row, train_row] for x in range(4) if labels[train_row, x]})
        assert ranking.labels[row].tolist() == best_of(votes, k)


def test_equally_near_neighbours_vote_in_training_order_and_tied_labels_rank_by_index():
    train = normalised([[1, 0], [1, 0], [1, 0]])
    labels = csr_array(np.array([[0, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]], dtype=np.float32))
    ranking = nearest_neighbour_ranking(train, labels, normalised([[1, 0]]), 5, num_neighbours=2)
    assert ranking.labels.tolist() == [[0, 1, 2, NO_LABEL, NO_LABEL]]
    assert ranking.scores.tolist() == [[1, 1, 1, -np.inf, -np.inf]]


def test_label_names_are_matched_by_tf_idf_of_words_and_pairs():
    text, names = "the sea and the tax, the tax of it", ["sea", "tax", "tax union"]
    # ln((1 + texts) / (1 + texts with it)) + 1; "tax union" occurs in none of the three texts.
    idf = {"sea": math.log(4 / 2) + 1, "tax": math.log(4 / 2) + 1, "union": math.log(4 / 2) + 1}
    pair = math.log(4 / 1) + 1
    document = {"sea": idf["sea"], "tax": (1 + math.log(2)) * idf["tax"]}
    length = math.hypot(*document.values())
    union = document["tax"] * idf["tax"] / math.hypot(idf["tax"], idf["union"], pair) / length
    expected = [document["tax"] / length, document["sea"] / length, union]
    ranking = label_name_ranking([text], names, 3, BACKGROUND)
    assert ranking.labels.tolist() == [[1, 0, 2]]
    assert ranking.scores[0] == pytest.approx(expected, rel=1e-6)
