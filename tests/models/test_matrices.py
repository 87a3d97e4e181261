"""Sparse matrices whose indices are as small as they may be."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from models.matrices import csr_of, transposed
from models.memory.memory import NeighbourMemory
from models.parts.storage import read_sparse


@pytest.fixture
def matrix() -> csr_array:
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


def test_indices_that_need_64_bits_keep_them():
    none = np.empty(0)
    made = csr_of(none, none.astype(np.int64), np.zeros(2, dtype=np.int64), (1, 2**31 + 5))
    assert made.indices.dtype == np.int64


def test_what_is_loaded_holds_small_indices(matrix, bundle):
    ids = [str(row) for row in range(30)]
    kept = NeighbourMemory.of_documents(
        csr_array(matrix, dtype=np.float32),
        csr_array(matrix > 0, dtype=np.float32),
        ids,
        num_neighbours=3,
        temperature=0.1,
    )
    memory = NeighbourMemory.from_arrays(kept.to_arrays(), kept.ids_to_json(), *[50] * 2)
    sparse = read_sparse(bundle)
    for each in (
        sparse.weights, sparse.weights_by_feature, memory.documents, memory.postings, memory.labels,
    ):  # fmt: skip
        assert each.indices.dtype == each.indptr.dtype == np.int32
