"""Cross-validation, searches and pipelines of scikit-learn take the estimator and the scorers."""

import pytest
from sklearn.model_selection import KFold, cross_validate

from longtail.training.estimators.classifier import LongtailClassifier
from longtail.training.estimators.scorers import precision_at_k, psp_at_k

pytestmark = pytest.mark.slow

SPARSE = {"scorers": ["sparse"]}


def test_sets_of_labels_are_cross_validated_each_fold_with_its_own_classes(training):
    sets = [set(row) for row in training.labels]
    scoring = {"P@5": precision_at_k(5), "PSP@5": psp_at_k(5)}
    found = cross_validate(
        LongtailClassifier(config=SPARSE), training.texts, sets,
        cv=2, scoring=scoring, return_estimator=True, error_score="raise",
    )  # fmt: skip
    first, second = found["estimator"]
    assert set(first.classes_) != set(second.classes_)
    _, rows = next(KFold(2).split(training.texts))
    texts, labels = ([of[row] for row in rows] for of in (training.texts, sets))
    assert found["test_P@5"][0] == precision_at_k(5)(first, texts, labels) > 0.1
    assert 0 < found["test_PSP@5"].min() <= found["test_PSP@5"].max() < 1
