"""The estimator: what it learns, what it answers, what it refuses, and where its bundle lies."""

import json

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from typer.testing import CliRunner

import longtail
from longtail.models.errors import BundleCorruptError, DataError
from longtail.training.estimators.classifier import LongtailClassifier

SPARSE = {"scorers": ["sparse"]}


def equal(a: csr_array, b: csr_array) -> bool:
    """To the bit, and stored at the same places."""
    parts = ("indptr", "indices", "data")
    return a.shape == b.shape and all(
        np.array_equal(getattr(a, part), getattr(b, part)) for part in parts
    )


def test_probabilities_are_those_of_the_command_to_the_bit(fitted, test, tmp_path):
    assert fitted.save(tmp_path / "registry") == 1
    source, target = tmp_path / "texts.jsonl", tmp_path / "answers.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in test.texts))
    options = ["--registry", str(tmp_path / "registry"), "-k", "10"]
    run = CliRunner().invoke(
        longtail.app, ["predict", "--input", str(source), "--output", str(target), *options]
    )
    assert run.exit_code == 0, run.output
    column_of = {name: column for column, name in enumerate(fitted.classes_)}
    found = fitted.predict_proba(test.texts).todok()
    answered = [json.loads(line)["labels"] for line in target.read_text().splitlines()]
    expected = {
        (row, column_of[label["id"]]): label["probability"]
        for row, labels in enumerate(answered)
        for label in labels
    }
    assert dict(found.items()) == expected


def test_a_saved_estimator_is_loaded_with_its_classes(fitted, test, tmp_path):
    fitted.save(tmp_path / "registry")
    loaded = LongtailClassifier.load(tmp_path / "registry", k=fitted.k)
    assert equal(loaded.predict_proba(test.texts), fitted.predict_proba(test.texts))
    assert loaded.classes_.tolist() == [str(each) for each in fitted.classes_]
    assert clone(loaded).k == fitted.k


def test_labels_above_the_threshold_are_predicted_however_many(fitted, test):
    manifest = fitted.bundle_.manifest
    threshold = manifest.thresholds[manifest.default_scorer]
    everything = longtail.load(fitted.bundle_.folder).predict(test.texts, k=len(fitted.classes_))
    expected = {
        (row, label.index)
        for row, each in enumerate(everything)
        for label in each.labels
        if label.probability >= threshold
    }
    narrow = clone(fitted).set_params(k=1)
    for name in ("bundle_", "classes_", "_model"):
        setattr(narrow, name, getattr(fitted, name))
    for estimator in (fitted, narrow):
        found = estimator.predict(test.texts)
        assert set(zip(*found.nonzero(), strict=True)) == expected
        assert set(found.data) == {1}


def test_lists_and_a_matrix_of_the_same_labels_train_the_same(training, fitted_sparse):
    listed = LongtailClassifier(config=SPARSE, classes=training.classes)
    listed.fit(tuple(training.texts), [set(row) for row in training.labels])
    assert listed.bundle_.manifest.digest == fitted_sparse.bundle_.manifest.digest
    dense = LongtailClassifier(config=SPARSE, classes=training.classes)
    dense.fit(np.array(training.texts), training.matrix.toarray())
    assert dense.bundle_.manifest.digest == fitted_sparse.bundle_.manifest.digest


def test_a_damaged_copy_is_refused(fitted_sparse):
    state = fitted_sparse.__getstate__()
    state["bundle_"]["labels.jsonl"] += b"\n"
    with pytest.raises(BundleCorruptError, match=r"labels\.jsonl"):
        LongtailClassifier().__setstate__(state)


@pytest.mark.parametrize(
    ("parameters", "texts", "labels", "message"),
    [
        ({"k": 0}, ["a"], [["x"]], "k is 0; expected a whole number of at least 1"),
        ({}, ["a", " "], [["x"], ["y"]], "text 1 is blank"),
        ({}, "a", [["x"]], "single str"),
        ({}, np.array([["a"]]), [["x"]], "have the shape"),
        ({}, ["a"], [["x"], ["y"]], "1 texts and the labels of 2"),
        ({"label_texts": {7: "seven"}}, ["a"], np.ones((1, 2)), "'7' is not among the classes"),
        ({"config": {"scorers": ["retrieval", "sparse"]}}, ["a"], [["x"]], "name an encoder"),
        ({"classes": ["x"]}, ["a"], [["y"]], "'y', which is not among the classes"),
    ],
)
def test_what_can_not_be_fitted_is_a_value_error(parameters, texts, labels, message):
    with pytest.raises(ValueError, match=message) as caught:
        LongtailClassifier().set_params(**parameters).fit(texts, labels)
    assert isinstance(caught.value, DataError)
