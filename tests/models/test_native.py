"""Calls of C functions: what may be passed, and the build of the library."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.models.native import build
from longtail.models.native.library import CSR, F32, I64, INT, csr, function
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
        rows = np.arange(4)
        function("sparse_sum_up", CSR, CSR, I64, INT, F32, INT)(matrix, matrix, rows, 4, sums, 4)
        assert_all_close(sums, (sparse_matrix @ sparse_matrix).toarray(), rtol=1e-6)


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
