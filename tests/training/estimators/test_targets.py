"""Labels in memory become columns; what is neither a matrix nor lists is refused."""

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_array, csr_matrix

from longtail.training.estimators.targets import InvalidInputError, targets_of, truth_for

MATRIX = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0]])


@pytest.mark.parametrize("form", [np.array, csc_array, coo_array, csr_matrix])
def test_a_matrix_is_read_in_any_form(form):
    for dtype in (bool, np.int64, float):
        found = targets_of(form(MATRIX.astype(dtype)))
        assert np.array_equal(found.truth.toarray(), MATRIX)
        assert list(found.label_ids()) == [["1", "2"], ["0"], []]
    assert found.classes.tolist() == [0, 1, 2]


def test_unknown_labels_get_columns_behind_the_classes():
    truth = truth_for([["b", "q"], ["p"]], np.array(["a", "b"]))
    assert truth.toarray().tolist() == [[0, 1, 0, 1], [0, 0, 1, 0]]


@pytest.mark.parametrize(
    ("y", "classes", "message"),
    [
        (["a", "b"], None, r"matrix of 0 and 1.* one label each: \[\[x\] for x in y\]"),
        ([0, 1], None, r"of numbers \[\[str\(x\)\] for x in y\]"),
        (7, None, "expected a matrix of 0 and 1"),
        (np.array([0, 1]), None, r"shape \(2,\).* one label each: "),
        ([[0, 1]], None, r"document 0: got 0 \(int\), expected labels as texts"),
        ([[], []], None, "no document has a label"),
        (2 * MATRIX, None, "got 2 in the matrix"),
        (MATRIX, ["a"], r"shape \(1,\), expected \(3,\)"),
        (MATRIX, ["a", "b", "a "], "'a' stands for two columns"),
    ],
)
def test_other_things_are_refused(y, classes, message):
    with pytest.raises(InvalidInputError, match=message):
        targets_of(y, classes)
