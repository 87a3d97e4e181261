"""Parts that contradict each other are refused; and how the sparse weights lie on disk."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from models.bundle import open_bundle
from models.errors import BundleCorruptError
from models.manifest import Manifest
from models.parts import DenseParts, ModelParts, read_parts, read_sparse, write_parts
from models.sparse import SparseModel

Spoil = Callable[[DenseParts], DenseParts]


def classifier(dense: DenseParts, **columns: np.ndarray) -> DenseParts:
    assert dense.classifier is not None
    return replace(dense, classifier=replace(dense.classifier, **columns))


def with_another_pooler(dense: DenseParts) -> DenseParts:
    encoder = copy.deepcopy(dense.encoder)
    encoder.register_parameter("third_pooler", torch.nn.Parameter(torch.zeros(2)))
    return replace(dense, encoder=encoder)


CONTRADICTIONS: dict[str, tuple[Spoil, str]] = {
    "a label vector too few": (
        lambda dense: replace(dense, label_vectors=dense.label_vectors[1:]),
        r"retrieval.safetensors can't be used: label_vectors \(6, 16\), wanted \(7, 16\)",
    ),
    "a narrow classifier": (
        lambda dense: classifier(dense, weight=dense.classifier.weight[:, 1:]),
        "classifier.safetensors can't be used: 16 dimensions wanted",
    ),
    "a classifier of labels that there are not": (
        lambda dense: classifier(dense, labels=dense.classifier.labels + 1),
        "classifier.safetensors can't be used: labels that are not rising rows of the catalogue",
    ),
    "a classifier of labels in another order": (
        lambda dense: classifier(dense, labels=dense.classifier.labels[::-1].copy()),
        "classifier.safetensors can't be used: labels that are not rising rows of the catalogue",
    ),
    "an array that no encoder has": (
        with_another_pooler,
        "dual_encoder.safetensors can't be used: arrays .*third_pooler",
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


def test_features_with_an_encoder_are_refused(
    parts: ModelParts, manifest: Manifest, tmp_path: Path
) -> None:
    spoilt, said = replace(parts, input="features"), replace(manifest, input="features")
    write_parts(tmp_path / "spoilt", spoilt, said, tmp_path / "scratch")
    with pytest.raises(BundleCorruptError, match=r"input 'features' with an encoder, which reads"):
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
