"""The scorers give the metrics of the evaluation, for Longtail and for other estimators."""

import numpy as np
from scipy.sparse import csr_array

import longtail
from longtail.training.data.dataset import open_dataset
from longtail.training.estimators.corpus import write_documents, write_labels
from longtail.training.estimators.scorers import (
    metrics_at_k,
    ndcg_at_k,
    precision_at_k,
    psp_at_k,
    ranked_classes,
)


def test_they_are_the_metrics_of_the_evaluation(fitted, test, tmp_path):
    write_labels(tmp_path / "labels.jsonl", fitted.classes_, {})
    write_documents(tmp_path / "test.jsonl", test.texts, test.labels)
    model = longtail.load(fitted.bundle_.folder)
    expected = model.evaluate(tmp_path).metrics[model.default_scorer]
    assert open_dataset(tmp_path).split("test").scan().labels.nnz == test.matrix.nnz
    for k in (1, 3, 10):
        for y in (test.matrix, test.labels):
            found = metrics_at_k(k)(fitted, test.texts, y)
            assert found == {name: expected[name] for name in found} and len(found) == 3
            assert precision_at_k(k)(fitted, test.texts, y) == expected[f"P@{k}"]
            assert ndcg_at_k(k)(fitted, test.texts, y) == expected[f"nDCG@{k}"]
            assert psp_at_k(k)(fitted, test.texts, y) == expected[f"PSP@{k}"]


def test_ties_go_to_the_smaller_class_and_only_stored_scores_are_ranked():
    dense = np.array([[0.5, 0.9, 0.5], [-1.0, -3.0, -2.0]])
    assert ranked_classes(dense, 2).tolist() == [[1, 0], [0, 2]]
    assert ranked_classes(dense, 4).tolist() == [[1, 0, 2, -1], [0, 2, 1, -1]]
    stored = csr_array(([-2.0, -1.0, 0.0], [2, 0, 1], [0, 2, 3]), shape=(2, 3))
    assert ranked_classes(stored, 2).tolist() == [[0, 2], [1, -1]]
