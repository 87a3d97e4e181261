"""The estimator keeps scikit-learn's conventions, as far as its checks apply to texts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.exceptions import SkipTestWarning
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

from longtail.training.estimators.classifier import LongtailClassifier

ROOT = Path(__file__).parents[3]

APPLYING = (
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
)
"""Checks that read no data; scikit-learn itself runs none where the input is text."""

NUMBERS = "fits on a matrix of random numbers, which are no texts"
DENSE = "wants a dense matrix of predictions, which would have a column for each of all labels"
EXPECTED_FAILED_CHECKS = {
    "check_array_api_input": NUMBERS,
    "check_classifier_not_supporting_multiclass": NUMBERS,
    "check_classifiers_multilabel_output_format_decision_function": DENSE,
    "check_classifiers_multilabel_output_format_predict": DENSE,
    "check_classifiers_multilabel_output_format_predict_proba": DENSE,
    "check_classifiers_multilabel_representation_invariance": NUMBERS,
    "check_estimator_sparse_tag": NUMBERS,
    "check_estimators_partial_fit_n_features": NUMBERS,
    "check_fit_score_takes_y": NUMBERS,
    "check_classifier_data_not_an_array": NUMBERS,
    "check_classifiers_classes": NUMBERS,
    "check_classifiers_one_label": NUMBERS,
    "check_classifiers_one_label_sample_weights": NUMBERS,
    "check_classifiers_regression_target": NUMBERS,
    "check_classifiers_train": NUMBERS,
    "check_complex_data": NUMBERS,
    "check_decision_proba_consistency": NUMBERS,
    "check_dict_unchanged": NUMBERS,
    "check_dont_overwrite_parameters": NUMBERS,
    "check_dtype_object": NUMBERS,
    "check_estimator_sparse_array": NUMBERS,
    "check_estimator_sparse_matrix": NUMBERS,
    "check_estimators_dtypes": NUMBERS,
    "check_estimators_empty_data_messages": NUMBERS,
    "check_estimators_fit_returns_self": NUMBERS,
    "check_estimators_nan_inf": NUMBERS,
    "check_estimators_overwrite_params": NUMBERS,
    "check_estimators_pickle": NUMBERS,
    "check_estimators_unfitted": NUMBERS,
    "check_f_contiguous_array_estimator": NUMBERS,
    "check_fit1d": NUMBERS,
    "check_fit2d_1feature": NUMBERS,
    "check_fit2d_1sample": NUMBERS,
    "check_fit2d_predict1d": NUMBERS,
    "check_fit_check_is_fitted": NUMBERS,
    "check_fit_idempotent": NUMBERS,
    "check_methods_sample_order_invariance": NUMBERS,
    "check_methods_subset_invariance": NUMBERS,
    "check_n_features_in": NUMBERS,
    "check_n_features_in_after_fitting": NUMBERS,
    "check_non_transformer_estimators_n_iter": NUMBERS,
    "check_pipeline_consistency": NUMBERS,
    "check_positive_only_tag_during_fit": NUMBERS,
    "check_readonly_memmap_input": NUMBERS,
    "check_requires_y_none": NUMBERS,
    "check_supervised_y_no_nan": NUMBERS,
}
"""Of those that scikit-learn has for classifiers, the ones that can't apply, and why."""


class OfNumbers(LongtailClassifier):
    """Says that it takes numbers, so that scikit-learn tells all its checks."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


def name_of(check) -> str:
    return getattr(check, "func", check).__name__


def test_every_check_of_scikit_learn_is_run_or_said_not_to_apply():
    found = {name_of(check) for _, check in estimator_checks_generator(OfNumbers())}
    assert found - set(APPLYING) - EXPECTED_FAILED_CHECKS.keys() == set()


@pytest.mark.slow
def test_the_checks_that_read_no_data_pass():
    """In a process without the checks of types at run time: some parameters are of wrong types."""
    code = (
        "import sklearn.utils.estimator_checks as checks\n"
        "from longtail.training.estimators.classifier import LongtailClassifier as C\n"
        f"names = [x for x in {APPLYING!r} if hasattr(checks, x)]\n"
        "[getattr(checks, name)('LongtailClassifier', C()) for name in names]\n"
        "print(len(names))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) >= 8


def test_scikit_learn_runs_its_checks_as_for_any_estimator_of_texts():
    with pytest.warns(SkipTestWarning, match="requires input"):
        check_estimator(LongtailClassifier(), expected_failed_checks=EXPECTED_FAILED_CHECKS)


def test_what_the_checks_of_numbers_would_see(training):
    """The same conventions, on texts: nothing given is changed, and a fit is a fresh start."""
    estimator = LongtailClassifier(config={"scorers": ["sparse"]}, classes=training.classes)
    before = {**estimator.get_params()}
    texts, matrix = list(training.texts), training.matrix.copy()
    assert estimator.fit(texts, matrix) is estimator
    assert estimator.get_params() == before
    assert texts == training.texts and (matrix != training.matrix).nnz == 0
    digest = estimator.bundle_.manifest.digest
    state = set(vars(estimator))
    found = estimator.decision_function(texts[:3])
    assert set(vars(estimator)) == state
    assert estimator.fit(texts, matrix).bundle_.manifest.digest == digest
    assert (estimator.decision_function(texts[:3]) != found).nnz == 0
    added = state - before.keys()
    assert all(name.startswith("_") or name.endswith("_") for name in added)
    one_by_one = [estimator.decision_function([text]).toarray() for text in texts[:3]]
    assert (found.toarray() == [row[0] for row in one_by_one]).all()
