"""Sparse matrices whose indices are as small as they may be."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, random_array

from longtail.models import processor
from longtail.models.matrices import (
    ArrayRule,
    HalfRows,
    Rows,
    check_arrays,
    column_norms,
    csr_of,
    rows_of_columns,
    stored_csr,
    transposed,
)
from longtail.models.native import build
from longtail.models.native.library import CSR, F32, F64, INT, Signature, csr
from longtail.models.results import html_table
from longtail.models.scorers.sparse import sum_up
from tests.closeness import assert_all_close
from tests.rankings import dense


@pytest.fixture
def matrix():
    return csr_array(random_array((30, 50), density=0.2, rng=np.random.default_rng(0)))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_rows_are_taken_and_joined_as_those_of_a_matrix(matrix, dtype):
    matrix = matrix.astype(np.float32)
    rows = Rows(matrix.indptr.astype(dtype), matrix.indices.astype(dtype), matrix.data)
    part, taken = Rows.part_of(matrix, slice(3, 90)), rows.take([4, 0, 4])
    joined = Rows.joined([part, taken, rows.take([])])
    wanted = matrix.toarray()
    assert np.array_equal(dense(Rows.joined([part]), 50), wanted[3:])
    assert np.array_equal(dense(taken, 50), wanted[[4, 0, 4]])
    assert np.array_equal(dense(joined, 50), np.concatenate([wanted[3:], wanted[[4, 0, 4]]]))
    for each in (taken, joined):
        assert csr(each).num_rows == len(each.indptr) - 1  # of one type, and contiguous
    assert Rows.joined([]).indptr.tolist() == [0]


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


@pytest.mark.parametrize(
    "array",
    [np.zeros(3), np.zeros((4, 4), dtype=np.float32)[:, ::2], np.zeros(3, dtype=">f4")],
    ids=["float64", "strided", "big-endian"],
)
def test_an_array_of_another_type_or_layout_is_refused(array):
    with pytest.raises(TypeError, match="expected <f4 in C order"):
        F32(array)


def test_a_matrix_is_passed_with_indices_of_either_width():
    sparse_matrix = csr_array(np.eye(4, k=1, dtype=np.float32) + np.eye(4, dtype=np.float32))
    wide = csr_array(sparse_matrix)
    wide.indptr, wide.indices = (x.astype(np.int64) for x in (wide.indptr, wide.indices))
    assert (csr(sparse_matrix).is_wide, csr(wide).is_wide) == (0, 1)
    for matrix in (sparse_matrix, wide):
        sums = np.zeros((4, 4), dtype=np.float32)
        sum_up(matrix, matrix, np.arange(4), sums)
        assert_all_close(sums, (sparse_matrix @ sparse_matrix).toarray(), rtol=1e-6)


TWO_ARRAYS = Signature(
    {"matrix": CSR, "x": F32["matrix.num_rows k"], "k": INT, "starts": F64.out["row+1"]}
)


def _arguments(**others):
    matrix = csr_array(np.eye(3, dtype=np.float32))
    given = {"matrix": matrix, "x": np.zeros((3, 2), np.float32), "k": 2, "starts": np.zeros(5)}
    return list((given | others).values())


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"x": np.zeros((2, 2), np.float32)}, r"f: x is .* shape \(2, 2\), expected \(3, 2\)"),
        ({"x": np.zeros(6, np.float32)}, r"shape \(6,\), expected \(3, 2\) \(matrix.num_rows k\)"),
        ({"k": 3}, r"expected \(3, 3\)"),
        ({"starts": np.broadcast_to(np.float64(0), (1,))}, "f: starts is a read-only array"),
    ],
)  # fmt: skip
def test_arrays_of_another_shape_or_read_only_are_refused(argument, message):
    TWO_ARRAYS.passed(_arguments(), "f")
    with pytest.raises(ValueError, match=message):
        TWO_ARRAYS.passed(_arguments(**argument), "f")


def test_a_name_that_stands_twice_has_one_length():
    signature = Signature({"first": F32["n 2"], "second": F64["2*n+1"]})
    rows = np.zeros((3, 2), np.float32)
    signature.passed([rows, np.zeros(7)], "f")
    with pytest.raises(ValueError, match=r"second is an array of shape \(6,\), expected \(7,\)"):
        signature.passed([rows, np.zeros(6)], "f")
    with pytest.raises(TypeError, match="f: 1 arguments, expected 2"):
        signature.passed([rows], "f")


def test_a_matrix_without_a_value_for_each_index_is_refused():
    matrix = csr_array(np.eye(3, dtype=np.float32))
    matrix.data = matrix.data[:2]
    with pytest.raises(ValueError, match=r"shape \(2,\), expected \(3,\)"):
        csr(matrix)


def test_a_warning_is_an_error_only_where_it_is_asked_for(tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr(build, "find_compiler", lambda *_: ["cc"])
    monkeypatch.setattr(build, "_compile", lambda _, flags, path: commands.append(flags))
    for value in ("", "1"):
        monkeypatch.setenv("LONGTAIL_STRICT", value)
        commands.clear()
        build.build(tmp_path)
        assert commands and all(("-Werror" in flags) == bool(value) for flags in commands)


@pytest.mark.slow
def test_the_kernels_compile_without_a_warning(tmp_path, monkeypatch):
    monkeypatch.setenv("LONGTAIL_STRICT", "1")
    build.build(tmp_path)
    assert len(list(tmp_path.iterdir())) == len(build.levels())


def test_a_checkout_without_a_compiler_says_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "find_compiler", lambda *_: None)
    with pytest.raises(RuntimeError, match="pip install ziglang"):
        build.build(tmp_path)


@pytest.mark.slow
def test_every_level_is_built_once_and_libraries_of_other_sources_go(tmp_path):
    old = tmp_path / "kernels-000000000000-v1.so"
    old.touch()
    build.build(tmp_path)
    built = {build.library_path(tmp_path, level) for level in build.levels()}
    assert set(tmp_path.iterdir()) == built
    times = {path: path.stat().st_mtime_ns for path in built}
    build.build(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in built} == times


def test_whatever_stands_in_a_cell_is_text():
    found = html_table(("a<", "b"), [("<script>", None), (0.123456, 7)], caption="&")
    assert found == (
        "<table><caption>&amp;</caption><thead><tr><th>a&lt;</th><th>b</th></tr></thead><tbody>"
        "<tr><td>&lt;script&gt;</td><td></td></tr><tr><td>0.1235</td><td>7</td></tr></tbody></table>"
    )


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (RuntimeError("CUDA error: device-side assert\nmore"), "CUDA error: device-side assert"),
        (torch.AcceleratorError("CUDA error: device lost"), "CUDA error: device lost"),
        (RuntimeError(""), "RuntimeError"),
        (torch.OutOfMemoryError("CUDA out of memory"), None),
        (None, None),
    ],
)
def test_a_gpu_that_refuses_a_sum_is_lost_but_a_full_one_is_not(monkeypatch, error, problem):
    def ones(*_, **__):
        if error is not None:
            raise error
        return torch.tensor([1.0])

    monkeypatch.setattr(torch, "ones", ones)
    assert processor.gpu_problem() == problem
