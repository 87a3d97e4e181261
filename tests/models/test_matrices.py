"""Sparse matrices whose indices are as small as they may be."""

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from longtail.models.matrices import (
    ArrayRule,
    HalfRows,
    check_arrays,
    column_norms,
    csr_of,
    rows_of_columns,
    stored_csr,
    transposed,
)
from tests.closeness import assert_all_close


@pytest.fixture
def matrix():
    return csr_array(random_array((30, 50), density=0.2, rng=np.random.default_rng(0)))


@pytest.mark.parametrize("wide", [("indices",), ("indptr",), ("indices", "indptr"), ()])
def test_indices_that_fit_have_32_bits_whatever_came(matrix, wide):
    arrays = {name: getattr(matrix, name) for name in ("indices", "indptr")}
    arrays |= {name: arrays[name].astype(np.int64) for name in wide}
    made = csr_of(matrix.data, arrays["indices"], arrays["indptr"], matrix.shape)
    columns = transposed(made)
    for each in (made, columns):
        assert each.indices.dtype == each.indptr.dtype == np.int32
    assert np.array_equal(made.toarray(), matrix.toarray())
    assert np.array_equal(columns.toarray(), matrix.toarray().T)


def test_rows_of_halves_are_the_rounded_ones(matrix):
    matrix.data[:3] = 1e-9, 6e-8, 65504  # nothing, the least, and the largest there is
    halves = HalfRows.rounded(matrix)
    wanted = matrix.toarray().astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(halves.to_csr().toarray(), wanted)
    np.testing.assert_array_equal(halves.transposed().to_csr().toarray(), wanted.T)
    np.testing.assert_array_equal(halves.largest_of_rows(), wanted.max(axis=1))
    norm = np.sqrt((wanted.astype(np.float64) ** 2).sum(axis=1).max())
    assert halves.longest_norm() == pytest.approx(norm, rel=1e-12)


def test_columns_are_taken_as_rows_in_any_order(matrix):
    asked = np.array([7, 0, 49, 3])
    found = rows_of_columns(csr_array(matrix, dtype=np.float32), asked)
    wanted = matrix.toarray().astype(np.float32)[:, asked].T
    np.testing.assert_array_equal(found.toarray(), wanted)
    assert rows_of_columns(csr_array(matrix, dtype=np.float32), asked[:0]).shape == (0, 30)
    norms = column_norms(csr_array(matrix, dtype=np.float32))
    assert_all_close(norms, np.linalg.norm(matrix.toarray(), axis=0), rtol=1e-6)


def spoilt(matrix: csr_array, **changes) -> dict[str, np.ndarray]:
    """Return the arrays of a matrix as they are stored, some values of them replaced."""
    arrays = {
        "data": matrix.data,
        "indices": matrix.indices.astype(np.int32),
        "indptr": matrix.indptr.astype(np.int64),
    }
    for name, (place, value) in changes.items():
        arrays[name] = arrays[name].copy()
        arrays[name][place] = value
    return arrays


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"indptr": (-1, 0)}, "indptr does not rise"),  # SciPy: nothing there to check
        ({"indptr": (-1, -1)}, "indptr does not rise"),
        ({"indptr": (0, -1)}, "indptr does not rise"),
        ({"indptr": (slice(1, -1), 2**31)}, "indptr does not rise"),
        ({"indptr": (5, 2**63 - 1)}, "indptr does not rise"),  # differences of it overflow
        ({"indices": (3, -1)}, "indices are not all from 0 to 49"),
        ({"indices": (3, 50)}, "indices are not all from 0 to 49"),
        ({"indices": (slice(None), 0)}, "indices do not rise"),
    ],
)
def test_pointers_and_indices_that_lead_elsewhere_are_refused(matrix, changes, words):
    with pytest.raises(ValueError, match=words):
        stored_csr(**spoilt(matrix, **changes), shape=matrix.shape)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.ones((2, 3)), "x is float64 with 2 axes, expected float32 with 2"),
        (np.ones(3, dtype=np.float32), "with 1 axes, expected float32 with 2"),
        (np.ones((3, 0), dtype=np.float32), "expected at least one column"),
        (np.full((1, 1), np.nan, dtype=np.float32), "x has values that are not finite"),
        (np.full((1, 1), -1, dtype=np.float32), "x has the value -1.0, expected 0"),
        (np.full((1, 1), 9, dtype=np.float32), "x has the value 9.0, expected 0 to 8"),
    ],
)
def test_an_array_that_breaks_its_rule_is_refused_by_its_name(array, words):
    with pytest.raises(ValueError, match=words):
        check_arrays({"x": array}, {"x": ArrayRule(("float32",), 2, least=0, most=8)})


@pytest.mark.parametrize("arrays", [{}, {"x": np.ones(1), "y": np.ones(1)}])
def test_other_arrays_than_expected_are_refused(arrays):
    with pytest.raises(ValueError, match=r"array '[xy]' is (missing|unknown), expected x"):
        check_arrays(arrays, {"x": ArrayRule(("float64",), 1)})
