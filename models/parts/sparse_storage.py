"""The sparse model on disk: from and to the files of a bundle."""

from __future__ import annotations

import numpy as np

from longtail.models.bundle.bundle import Bundle
from longtail.models.matrices import ArrayRule, check_arrays, check_rows, stored_csr
from longtail.models.parts.consistency import reading
from longtail.models.parts.model_parts import _VOCABULARY_FILE, SPARSE_FILE
from longtail.models.scorers.sparse import SparseModel
from longtail.models.scorers.tfidf import TfidfModel

_SPARSE_RULES = {
    "data": ArrayRule(("float32",), 1),
    "indices": ArrayRule(("int32",), 1),
    "indptr": ArrayRule(("int64",), 1),
    "bias": ArrayRule(("float32",), 1),
    "labels": ArrayRule(("int64",), 1, least=0),
    "idf": ArrayRule(("float32",), 1),
}


MAPPED = ("data", "indices")
"""Arrays that stay in their file."""


def arrays_of_sparse(model: SparseModel) -> dict[str, np.ndarray]:
    """Return the arrays of a sparse model, its weights by feature."""
    weights = model.weights_by_feature
    return {
        "data": weights.data,
        "indices": weights.indices.astype(np.int32),
        "indptr": weights.indptr.astype(np.int64),
        "bias": model.bias,
        "labels": model.labels,
        "idf": model.tfidf.idf,
    }


def texts_of_sparse(model: SparseModel) -> dict[str, str]:
    """Return the text files of a sparse model, by name."""
    return {_VOCABULARY_FILE: model.tfidf.to_json()}


def read_sparse(bundle: Bundle) -> SparseModel:
    """Return the sparse model of a verified bundle, without loading its encoder."""
    with reading(bundle, SPARSE_FILE):
        arrays = bundle.tensors(SPARSE_FILE, MAPPED)
        check_arrays(arrays, _SPARSE_RULES)
        with reading(bundle, _VOCABULARY_FILE):
            tfidf = TfidfModel.from_json(bundle.text(_VOCABULARY_FILE), arrays["idf"])
        shape = (len(tfidf.tokens), len(arrays["bias"]))
        weights = stored_csr(arrays["data"], arrays["indices"], arrays["indptr"], shape)
        check_rows(arrays["labels"], (weights.shape[1],), len(bundle.catalogue))
        return SparseModel(tfidf, weights, arrays["bias"], arrays["labels"])
