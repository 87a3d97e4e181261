"""The scorers give the metrics of the evaluation, for Longtail and for other estimators."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

import longtail
from longtail.training.data.dataset import open_dataset
from longtail.training.estimators.corpus import write_documents, write_labels
from longtail.training.estimators.invalid_input import InvalidInputError
from longtail.training.estimators.scorers import (
    metrics_at_k,
    ndcg_at_k,
    precision_at_k,
    psp_at_k,
    ranked_classes,
)
from longtail.training.evaluation.metrics import inverse_propensities


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


def test_other_estimators_are_measured_as_well(training, test):
    frequent = np.flatnonzero(training.matrix.sum(axis=0) >= 10)
    y, truth = training.matrix[:, frequent], test.matrix[:, frequent].toarray()
    estimator = make_pipeline(TfidfVectorizer(), OneVsRestClassifier(LogisticRegression()))
    estimator.fit(training.texts, y)
    scores = estimator.decision_function(test.texts)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :3]
    hits = np.take_along_axis(truth, best, axis=1)
    assert precision_at_k(3)(estimator, test.texts, truth) == hits.mean()
    weights = inverse_propensities(y.toarray().sum(axis=0), len(training.texts))
    attainable = -np.sort(-truth * weights, axis=1)[:, :3]
    expected = (hits * weights[best]).sum() / attainable.sum()
    assert psp_at_k(3, y)(estimator, test.texts, truth) == pytest.approx(expected)
    with pytest.raises(InvalidInputError, match="PSP needs to know how often Pipeline saw"):
        psp_at_k(3)(estimator, test.texts, truth)


def test_ties_go_to_the_smaller_class_and_only_stored_scores_are_ranked():
    dense = np.array([[0.5, 0.9, 0.5], [-1.0, -3.0, -2.0]])
    assert ranked_classes(dense, 2).tolist() == [[1, 0], [0, 2]]
    assert ranked_classes(dense, 4).tolist() == [[1, 0, 2, -1], [0, 2, 1, -1]]
    stored = csr_array(([-2.0, -1.0, 0.0], [2, 0, 1], [0, 2, 3]), shape=(2, 3))
    assert ranked_classes(stored, 2).tolist() == [[0, 2], [1, -1]]


def test_an_estimator_without_scores_is_refused(test):
    class Silent:
        classes_ = np.arange(2)

    with pytest.raises(InvalidInputError, match="Silent has neither decision_function nor"):
        precision_at_k(1)(Silent(), ["a"], np.ones((1, 2)))
