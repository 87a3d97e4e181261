"""Several seeds of one configuration: what is made of their predictions."""

from __future__ import annotations

import numpy as np
import pytest
import seeds

from longtail.models.ranking.top_k import Ranking
from longtail.training.assessment.compare import write_predictions
from longtail.training.data.dataset import open_dataset


def right_and_wrong(dataset):
    """Return ten labels of every document, its first true one in front, or none of its own."""
    truth = dataset.split("test").scan().labels
    right = np.empty((truth.shape[0], 10), dtype=np.int64)
    wrong = right.copy()
    for row in range(len(right)):
        own = truth.indices[truth.indptr[row] : truth.indptr[row + 1]]
        others = np.setdiff1d(np.arange(truth.shape[1]), own)
        wrong[row] = others[:10]
        right[row] = [own[0], *others[:9]]
    return right, wrong


def test_means_and_intervals_are_of_seeds_and_documents(tiny_corpus, tmp_path):
    dataset = open_dataset(tiny_corpus)
    judge = seeds.Judge(dataset)
    joined = []
    for number, labels in enumerate(right_and_wrong(dataset)):
        path = tmp_path / f"{number}.npz"
        scores = np.tile(-np.arange(10, dtype=np.float32), (len(labels), 1))
        write_predictions(path, Ranking(labels, scores), len(dataset.catalogue))
        joined.append(judge.read(path))
    values = np.array([judge.values(each) for each in joined])
    table = seeds.table_of({"retrieval": values, "sparse": values / 2})
    names = [column["name"] for column in table["columns"]]
    first, second = table["rows"]
    assert [first[0], second[0]] == ["`retrieval`", "`sparse`"]
    assert first[names.index("P@1")] == {"mean": 50.0, "standard_error": pytest.approx(50.0)}
    drawn = judge.drawn(joined)
    assert drawn["P@1"][0] == pytest.approx(0.5)
    assert drawn["P@5"][0] == pytest.approx(values[:, names.index("P@5") - 1].mean() / 100)
    assert set(np.unique(drawn["P@1"].round(9))) == {0.0, 0.5, 1.0}  # the seeds that were drawn


def test_too_few_labels_of_a_text_are_refused(tiny_corpus, tmp_path):
    dataset = open_dataset(tiny_corpus)
    labels = right_and_wrong(dataset)[0][:, :5]
    scores = np.zeros(labels.shape, dtype=np.float32)
    write_predictions(tmp_path / "x.npz", Ranking(labels, scores), len(dataset.catalogue))
    with pytest.raises(seeds.DataError, match="5 labels a text; give 10"):
        seeds.Judge(dataset).read(tmp_path / "x.npz")
