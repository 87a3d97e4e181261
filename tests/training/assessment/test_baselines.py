"""Baselines against dense loops."""

import json
import math
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.models.errors import DataError
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.training.assessment.baselines import label_name_ranking, nearest_neighbour_ranking
from longtail.training.assessment.compare import read_predictions, write_predictions
from longtail.training.assessment.truth import RetiredLabels, in_order_of
from longtail.training.assessment.untrained import LeftOut
from longtail.training.data.dataset import Dataset, open_dataset

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


RANKING = Ranking(
    labels=np.array([[4, 0, 2], [1, NO_LABEL, NO_LABEL], [NO_LABEL] * 3]),
    scores=np.array([[0.1, 0.1, -3e-7], [2, -np.inf, -np.inf], [-np.inf] * 3], dtype=np.float32),
)


def test_a_ranking_survives_the_round_trip(tmp_path):
    write_predictions(tmp_path / "a.npz", RANKING, 5)
    found = read_predictions(tmp_path / "a.npz", 3, 5)
    assert np.array_equal(found.labels, RANKING.labels)
    assert np.array_equal(found.scores, RANKING.scores)


WRONG = {
    "got predictions for 3 documents and 6 labels; expected 3 documents and 5": {"num_labels": 6},
    "got predictions for 1 documents and 5 labels; expected 3 documents and 5": {
        "labels": [[1]], "scores": [[1.0]],
    },
    "a.npz: can't be used as a ranking (labels (3, 3), scores (2, 3))": {
        "scores": RANKING.scores[:2],
    },
    "a.npz: can't be used as a ranking (labels (3,), scores (3,))": {
        "labels": [1, 2, 3], "scores": [1.0, 2.0, 3.0],
    },
    "a.npz: can't be used as a ranking (Object arrays cannot be loaded": {"labels": [None]},
    "a.npz: can't be used as a ranking (": {"labels": ["x"]},
}  # fmt: skip


@pytest.mark.parametrize(("reason", "changed"), WRONG.items(), ids=WRONG)
def test_a_file_of_other_data_or_arrays_is_refused(reason, changed, tmp_path):
    arrays = {"labels": RANKING.labels, "scores": RANKING.scores, "num_labels": 5}
    np.savez(tmp_path / "a.npz", **(arrays | {x: np.array(y) for x, y in changed.items()}))
    with pytest.raises(DataError, match=re.escape(reason)):
        read_predictions(tmp_path / "a.npz", 3, 5)


@pytest.mark.parametrize("content", [b"", b"3 5\n1:1\n", b"PK\x03\x04", b"PK\x05\x06" + bytes(18)])
def test_a_file_that_is_none_is_refused(content, tmp_path):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.npz: can't be used as a ranking"):
        read_predictions(tmp_path / "a.npz", 3, 5)


def test_a_file_that_was_cut_off_is_refused_at_each_byte(tmp_path):
    path = tmp_path / "a.npz"
    write_predictions(path, RANKING, 5)
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match="can't be used as a ranking"):
            read_predictions(path, 3, 5)


DOCUMENTS = (["a"], ["old"], ["older", "a"], ["gone", "b"], ["split"], ["old", "b"])
RETIRED = {"old": ("a",), "older": ("old",), "gone": (), "split": ("a", "b")}


def catalogue_of(**retired: tuple[str, ...]) -> LabelCatalogue:
    in_use = [Label(name, name) for name in ("b", "a", *(RETIRED.keys() - retired.keys()))]
    others = [
        Label(name, name, is_deprecated=True, is_retired=True, replaced_by=by)
        for name, by in retired.items()
    ]
    return LabelCatalogue([*others, *in_use])


@pytest.fixture
def read(tmp_path):
    def read_with(catalogue: LabelCatalogue) -> tuple[Dataset, object]:
        lines = (json.dumps({"text": "x", "labels": labels}) for labels in DOCUMENTS)
        (tmp_path / "test.jsonl").write_text("\n".join(lines))
        dataset = open_dataset(tmp_path, known=catalogue)
        return dataset, dataset.split("test").scan().labels

    return read_with


def names_of(catalogue: LabelCatalogue, truth) -> list[set[str]]:
    assert set(np.unique(truth.data)) == {1}
    rows = np.split(truth.indices, truth.indptr[1:-1])
    assert all(len(set(row.tolist())) == len(row) for row in rows)
    return [{catalogue[column].id for column in row.tolist()} for row in rows]


def test_merged_labels_stand_for_the_one_in_use_and_others_are_left_out(read):
    catalogue = catalogue_of(**RETIRED)
    dataset, listed = read(catalogue)
    found = names_of(catalogue, in_order_of(catalogue, dataset, listed))
    assert found == [{"a"}, {"a"}, {"a"}, {"b"}, set(), {"a", "b"}]
    told = RetiredLabels.of(catalogue, dataset, listed)
    assert told == RetiredLabels(num_replaced=3, num_left_out=2)
    assert str(told) == (
        "Retired labels of the documents: 3 stand for the labels that they were merged into, "
        "2 that were dropped or split are left out."
    )


def corpus_with(folder, *splits: str) -> Dataset:
    (folder / "labels.jsonl").write_text('{"id": "a", "name": "A"}')
    for name in splits:
        (folder / f"{name}.jsonl").write_text('{"text": "x", "labels": ["a"]}')
    return open_dataset(folder)


@pytest.mark.parametrize(
    ("there", "split", "is_advised"),
    [("test", "dev", True), ("test", "test", False), ("dev", "train", False)],
)
def test_no_advice_asks_for_the_split_that_is_in_force_or_for_none(
    tmp_path, there, split, is_advised
):
    dataset = corpus_with(tmp_path, there)
    with pytest.raises(DataError) as caught:
        LeftOut(np.arange(100) < 90).check(dataset, split, "version 2")
    assert ("use --split test" in str(caught.value)) == is_advised


@pytest.mark.parametrize(
    ("there", "advice"),
    [
        (["train"], "it has 'train'; add documents that the model was not trained on as 'test."),
        (["train", "dev"], "it has 'train', 'dev'; use --split dev, or add documents that "),
    ],
)
def test_for_want_of_a_split_only_one_that_can_be_measured_on_is_advised(tmp_path, there, advice):
    with pytest.raises(DataError, match="no split 'test'; ") as caught:
        corpus_with(tmp_path, *there).split("test")
    assert advice in str(caught.value)
