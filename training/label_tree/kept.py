"""The label tree of a stage: fitted once, and kept in the stage's folder."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Float32
from safetensors.numpy import load_file
from scipy.sparse import csr_array

from longtail.models.label_tree.tree import LabelTree
from longtail.training.configuration.learning import TreeFitConfig
from longtail.training.label_tree.fit import NUM_COMPONENTS, fit_tree
from longtail.training.runtime.kept import kept, save_arrays

logger = logging.getLogger(__name__)


def kept_tree(
    vectors: Callable[[], Float32[np.ndarray, "document dim"]],
    truth: Float32[csr_array, "document label"],
    config: TreeFitConfig,
    *,
    seed: int,
    folder: Path,
) -> LabelTree:
    """Return the label tree of a folder, or fit it and save it there.

    Args:
        vectors: Gives the document vectors, where they are needed.
        truth: Labels of the documents.
        config: How it is fitted.
        seed: Of the fit.
        folder: Of the stage.
    """

    def fit() -> LabelTree:
        read = vectors()
        num_components = min(NUM_COMPONENTS, read.shape[1])
        fitted = fit_tree(
            read, truth, num_components=num_components, regulariser=config.regulariser, seed=seed
        )
        logger.info(
            "label tree: lambda_n %g, %.3f nats a pair", fitted.regulariser, fitted.log_likelihood
        )
        return fitted.tree

    return kept(
        folder / "tree.safetensors",
        fit,
        lambda path: LabelTree.from_arrays(load_file(path)),
        lambda path, tree: save_arrays(path, tree.to_arrays()),
    )
