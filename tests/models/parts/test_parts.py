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
from longtail.models.parts.dense_parts import DenseParts
from longtail.models.parts.model_parts import ModelParts
from longtail.models.parts.sparse_storage import read_sparse
from longtail.models.scorers.sparse import SparseModel

Spoil = Callable[[DenseParts], DenseParts]


def classifier(dense: DenseParts, **columns: np.ndarray) -> DenseParts:
    assert dense.classifier is not None
    return replace(dense, classifier=replace(dense.classifier, **columns))


def linear(dense: DenseParts, **columns: np.ndarray) -> DenseParts:
    assert dense.linear is not None
    return replace(
        dense, linear=replace(dense.linear, model=replace(dense.linear.model, **columns))
    )


def tree(dense: DenseParts, **arrays: np.ndarray) -> DenseParts:
    assert dense.linear is not None and dense.linear.tree is not None
    changed = LabelTree.from_arrays(dense.linear.tree.to_arrays() | arrays)
    return replace(dense, linear=replace(dense.linear, tree=changed))


ONE_LABEL = {
    "weights": np.zeros((0, 2), dtype=np.float32),
    "biases": np.zeros(0, dtype=np.float32),
    "label_of_leaf": np.zeros(1, dtype=np.int64),
}


def with_another_pooler(dense: DenseParts) -> DenseParts:
    encoder = copy.deepcopy(dense.encoder)
    encoder.register_parameter("third_pooler", torch.nn.Parameter(torch.zeros(2)))
    return replace(dense, encoder=encoder)


CONTRADICTIONS: dict[str, tuple[Spoil, str]] = {
    "a label vector too few": (
        lambda dense: replace(dense, label_vectors=dense.label_vectors[1:]),
        r"retrieval.safetensors can't be used: label_vectors \(6, 16\), expected \(7, 16\)",
    ),
    "a narrow classifier": (
        lambda dense: classifier(dense, weight=dense.classifier.weight[:, 1:]),
        "classifier.safetensors can't be used: 16 dimensions expected",
    ),
    "a classifier of labels that there are not": (
        lambda dense: classifier(dense, labels=dense.classifier.labels + 1),
        "classifier.safetensors can't be used: labels that are not rising rows of the catalogue",
    ),
    "a classifier of labels in another order": (
        lambda dense: classifier(dense, labels=dense.classifier.labels[::-1].copy()),
        "classifier.safetensors can't be used: labels that are not rising rows of the catalogue",
    ),
    "a linear scorer of other dimensions": (
        lambda dense: linear(dense, weight=dense.linear.model.weight[:, 1:]),
        "linear.safetensors can't be used: 16 dimensions expected",
    ),
    "a linear scorer of labels that there are not": (
        lambda dense: linear(dense, labels=dense.linear.model.labels + 1),
        "linear.safetensors can't be used: labels that are not rising rows of the catalogue",
    ),
    "a tree of fewer labels": (
        lambda dense: tree(dense, **ONE_LABEL),
        r"tree.safetensors can't be used: a tree of .* \(1, 16\), expected 7 to 7, and 16",
    ),
    "a tree of other dimensions": (
        lambda dense: tree(dense, mean=np.zeros(3, np.float32), components=np.eye(2, 3, dtype="f")),
        r"tree.safetensors can't be used: a tree of .* \(7, 3\), expected 7 to 7, and 16",
    ),
    "an array that no encoder has": (
        with_another_pooler,
        "dual_encoder.safetensors can't be used: array .*third_pooler.*unknown",
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_dense_parts_that_contradict_each_other_are_refused(
    parts: ModelParts, dense: DenseParts, manifest: Manifest, tmp_path: Path, name: str
) -> None:
    spoil, message = CONTRADICTIONS[name]
    spoilt = replace(parts, dense=spoil(dense))
    write_parts(tmp_path / "spoilt", spoilt, manifest, tmp_path / "scratch")
    with pytest.raises(BundleCorruptError, match=f"bundle 'spoilt': {message}.*; train again"):
        read_parts(open_bundle(tmp_path / "spoilt"))


def refusal_of_linear(
    parts: ModelParts, manifest: Manifest, folder: Path, **changes: object
) -> str:
    """Write a bundle with another linear scorer and a manifest that fits, and try to read it."""
    assert parts.dense is not None and parts.dense.linear is not None
    scorer = replace(parts.dense.linear, **changes)
    spoilt = replace(parts, dense=replace(parts.dense, linear=scorer))
    said = replace(manifest, linear_correction=scorer.correction)
    write_parts(folder / "spoilt", spoilt, said, folder / "scratch")
    with pytest.raises(BundleCorruptError) as caught:
        read_parts(open_bundle(folder / "spoilt"))
    return str(caught.value)


def test_a_prior_of_labels_that_nobody_carries_is_refused(
    parts: ModelParts, dense: DenseParts, manifest: Manifest, tmp_path: Path
) -> None:
    assert dense.linear is not None
    model = replace(dense.linear.model, labels=np.arange(5))  # 2 has no training document
    refused = refusal_of_linear(
        parts, manifest, tmp_path, model=model, correction="prior", tree=None
    )
    assert "linear.safetensors can't be used: correction 'prior' with labels that no" in refused


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
