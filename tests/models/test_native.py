"""Calls of C functions: what may be passed, and the build of the library."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.models.native import build
from longtail.models.native.library import CSR, F32, F64, INT, Signature, csr
from longtail.models.scorers.sparse import sum_up
from tests.closeness import assert_all_close


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
