"""Parts that contradict each other are refused; and how the sparse weights lie on disk."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from longtail.models.bundle.bundle import open_bundle
from longtail.models.bundle.manifest import Manifest
from longtail.models.errors import BundleCorruptError
from longtail.models.kinds.storage import read_parts, write_parts
from longtail.models.label_tree.tree import LabelTree
from longtail.models.parts.model_parts import ModelParts
from longtail.models.parts.sparse_storage import read_sparse
from longtail.models.scorers.sparse import SparseModel

Spoil = Callable[[ModelParts], ModelParts]


def rows(parts, scorer: str, **columns):
    """The parts with other rows of a scorer."""
    linear = parts.models[scorer]
    changed = replace(linear, model=replace(linear.model, **columns))
    return replace(parts, models={**parts.models, scorer: changed})


def tree(parts, **arrays):
    linear = parts.models["linear"]
    changed = replace(linear, tree=LabelTree.from_arrays(linear.tree.to_arrays() | arrays))
    return replace(parts, models={**parts.models, "linear": changed})


ONE_LABEL = {
    "weights": np.zeros((0, 2), dtype=np.float32),
    "biases": np.zeros(0, dtype=np.float32),
    "label_of_leaf": np.zeros(1, dtype=np.int64),
}


def with_another_pooler(parts):
    encoder = copy.deepcopy(parts.dense.encoder)
    encoder.register_parameter("third_pooler", torch.nn.Parameter(torch.zeros(2)))
    return replace(parts, dense=replace(parts.dense, encoder=encoder))


def with_label_vectors_but_one(parts):
    return replace(parts, dense=replace(parts.dense, label_vectors=parts.dense.label_vectors[1:]))


def labels_of(parts, scorer: str):
    return parts.models[scorer].model.labels


CONTRADICTIONS: dict[str, tuple[Spoil, str]] = {
    "a label vector too few": (
        with_label_vectors_but_one,
        r"retrieval.safetensors can't be used: label_vectors \(6, 16\), expected \(7, 16\)",
    ),
    "a tree of fewer labels": (
        lambda parts: tree(parts, **ONE_LABEL),
        r"linear.safetensors can't be used: a tree of .* \(1, 16\), expected 7 to 7, and 16",
    ),
    "a tree of other dimensions": (
        lambda parts: tree(parts, mean=np.zeros(3, np.float32), components=np.eye(2, 3, dtype="f")),
        r"linear.safetensors can't be used: a tree of .* \(7, 3\), expected 7 to 7, and 16",
    ),
    "an array that no encoder has": (
        with_another_pooler,
        "dual_encoder.safetensors can't be used: array .*third_pooler.*unknown",
    ),
}
for name in ("classifier", "linear"):
    file = f"{name}.safetensors can't be used"
    CONTRADICTIONS |= {
        f"{name} of other dimensions": (
            lambda parts, x=name: rows(parts, x, weight=parts.models[x].model.weight[:, 1:]),
            f"{file}: 16 dimensions expected",
        ),
        f"{name} of labels that there are not": (
            lambda parts, x=name: rows(parts, x, labels=labels_of(parts, x) + 1),
            f"{file}: labels that are not rising rows of the catalogue",
        ),
        f"{name} of labels in another order": (
            lambda parts, x=name: rows(parts, x, labels=labels_of(parts, x)[::-1].copy()),
            f"{file}: labels that are not rising rows of the catalogue",
        ),
    }


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_dense_parts_that_contradict_each_other_are_refused(parts, manifest, tmp_path, name):
    spoil, message = CONTRADICTIONS[name]
    write_parts(tmp_path / "spoilt", spoil(parts), manifest, tmp_path / "scratch")
    with pytest.raises(BundleCorruptError, match=f"bundle 'spoilt': {message}.*; train again"):
        read_parts(open_bundle(tmp_path / "spoilt"))


@pytest.mark.parametrize(
    ("correction", "said", "word"),
    [
        ("prior", "prior", "linear.safetensors can't be used: correction 'prior' with labels that"),
        ("tree", "tree", "linear.safetensors can't be used: correction 'tree' with 0 arrays"),
        ("none", "prior", "linear_correction 'prior'"),
    ],
)
def test_a_correction_that_does_not_fit_is_refused(
    parts, manifest, tmp_path, correction, said, word
):
    linear = parts.models["linear"]
    model = replace(linear.model, labels=np.arange(5))  # 2 has no training document
    scorer = replace(linear, model=model, correction=correction, tree=None)
    spoilt = replace(parts, models={**parts.models, "linear": scorer})
    said = replace(manifest, linear_correction=said)
    write_parts(tmp_path / "spoilt", spoilt, said, tmp_path / "scratch")
    with pytest.raises(BundleCorruptError, match=word):
        read_parts(open_bundle(tmp_path / "spoilt"))


def published(parts: ModelParts, values: np.ndarray, manifest: Manifest, folder: Path) -> str:
    """Write a sparse model with these first weights, and return the type that they have on disk."""
    weights = parts.sparse.weights.copy()
    weights.data[:] = np.resize(values, len(weights.data))
    sparse = replace(parts.sparse, weights=weights)
    write_parts(folder / "b", replace(parts, sparse=sparse), manifest, folder / "scratch")
    bundle = open_bundle(folder / "b")
    found: SparseModel = read_sparse(bundle)
    assert found.weights.dtype == np.float32
    assert (found.weights != weights).nnz == 0
    return bundle.manifest.tensors["sparse.safetensors"]["data"].dtype


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([0.5, -2.25, 65504.0], "F16"),
        ([0.1], "F32"),  # no sum of eleven powers of two
        ([0.5, 65536.0], "F32"),  # beyond the largest
        ([2.0**-26], "F32"),  # below the smallest
    ],
)
def test_sparse_weights_are_stored_in_halves_only_where_that_is_exact(
    sparse_parts: ModelParts,
    sparse_manifest: Manifest,
    tmp_path: Path,
    values: list[float],
    dtype: str,
) -> None:
    given = np.array(values, dtype=np.float32)
    assert published(sparse_parts, given, sparse_manifest, tmp_path) == dtype
