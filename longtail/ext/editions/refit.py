"""Classifiers of a few labels, fitted again to documents that a model remembers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float32, Int64
from pydantic import ValidationError
from scipy.sparse import csr_array

from longtail.models.bundle.manifest import Manifest
from longtail.training.configuration.sections import SparseConfig
from longtail.training.sparse.svm import SvmProblem


def fit_rows(
    features: Float32[csr_array, "document feature"],
    truth: Float32[csr_array, "document label"],
    labels: Int64[np.ndarray, fitted],
    config: SparseConfig,
    *,
    seed: int,
) -> tuple[Float32[csr_array, "fitted feature"], Float32[np.ndarray, fitted]]:
    """Return weights and biases of some labels, as `fit_sparse_model` fits those of all.

    Args:
        features: Documents.
        truth: The labels of each.
        labels: Rows of those to fit, each with a document.
        config: Loss, cost, pruning and working sets.
        seed: Seed of all that is random.
    """
    fitted = SvmProblem(features, csr_array(truth.T), config, seed=seed).fit(labels)
    starts = np.concatenate([[0], np.cumsum(fitted.sizes)])
    shape = (len(labels), features.shape[1])
    return csr_array((fitted.weights, fitted.features, starts), shape=shape), fitted.bias


def fitting_as(
    manifest: Manifest,
) -> (
    Callable[
        [csr_array, csr_array, Int64[np.ndarray, "_"]], tuple[csr_array, Float32[np.ndarray, "_"]]
    ]
    | None
):
    """Return `fit_rows` with the settings and the seed of the training of a model.

    None where its manifest does not tell them.
    """
    try:
        config = SparseConfig.model_validate(manifest.training["sparse"])
        seed = int(manifest.training["seed"])
    except (KeyError, TypeError, ValueError, ValidationError):
        return None
    return lambda features, truth, labels: fit_rows(features, truth, labels, config, seed=seed)
