"""The estimator keeps scikit-learn's conventions, as far as its checks apply to texts."""

import subprocess
import sys
from pathlib import Path

import pytest

from longtail.training.estimators.classifier import LongtailClassifier

ROOT = Path(__file__).parents[3]

APPLYING = (
    "check_do_not_raise_errors_in_init_or_set_params", "check_estimator_cloneable",
    "check_estimator_repr", "check_estimator_tags_renamed", "check_get_params_invariance",
    "check_mixin_order", "check_no_attributes_set_in_init",
    "check_parameters_default_constructible", "check_set_params", "check_valid_tag_types",
)  # fmt: skip
"""Checks that read no data; scikit-learn itself runs none where the input is text."""


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
