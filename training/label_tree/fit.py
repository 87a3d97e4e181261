"""Fitting the label tree to documents and their labels (Bamler & Mandt 2020, section 3).

The features, the choice of lambda_n and the whole fit, once for a stage, in whose folder the tree
is kept. `longtail.training.label_tree.levels` fits the levels.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Int64
from safetensors.numpy import load_file
from scipy.sparse import coo_array, csr_array
from torch import Tensor

from longtail.models.errors import ConfigError
from longtail.models.label_tree.tree import LabelTree, check_finite, depth_of, project
from longtail.training.configuration.negatives import TreeFitConfig
from longtail.training.label_tree.levels import GrownTree, grow_tree
from longtail.training.runtime.kept import kept, save_arrays
from longtail.training.runtime.run_log import progress_bar

logger = logging.getLogger(__name__)

NUM_COMPONENTS = 16
"""Principal components of the document vectors that a tree reads, where these have as many."""
_NUM_FOLDS = 3
_EXPONENTS = range(-4, 7)  # powers of ten that cross-validation may come to
_DOCUMENTS_AT_A_TIME = 2**14  # whose vectors are held in float64


@dataclass(frozen=True, slots=True, eq=False)
class FittedTree:
    """A tree and how it was fitted.

    Attributes:
        tree: On the CPU.
        regulariser: lambda_n.
        log_likelihood: Nats a pair on the training pairs: Eq. 7 divided by the pairs' weight.
        held_out: Nats a pair on documents left out, by lambda_n; empty if lambda_n was given.
    """

    tree: LabelTree
    regulariser: float
    log_likelihood: float
    held_out: dict[float, float]


def fit_tree(
    vectors: Float32[np.ndarray, "document dim"],
    truth: Float32[csr_array, "document label"],
    *,
    num_components: int = NUM_COMPONENTS,
    regulariser: float | None = None,
    seed: int = 0,
) -> FittedTree:
    """Fit a tree to all pairs of a document and a label that it carries.

    A label without a pair gets a leaf too, and a small probability.

    Args:
        vectors: Document vectors; where all are equal the tree knows label frequencies only.
        truth: The labels of each document; the values are the weights of the pairs.
        num_components: Principal components k that the tree reads.
        regulariser: lambda_n, above zero; None: the best power of ten by cross-validation over the
            documents, in three more fits for every power tried.
        seed: Seed of the cross-validation's folds; nothing else is random.
    """
    if (dim := vectors.shape[1]) < num_components:
        raise ConfigError(
            f"label tree: document vectors have {dim} dimensions, expected at least "
            f"{num_components}; use another encoder"
        )
    data = _prepare(vectors, truth, num_components)
    held_out: dict[float, float] = {}
    if regulariser is None:
        held_out = _cross_validate(data, seed)
        regulariser = max(held_out, key=lambda each: held_out[each])
        logger.info("label tree: lambda_n %g; nats a pair held out: %s", regulariser, held_out)
    grown = _grow(data.features, truth, regulariser, "label tree")
    return FittedTree(
        tree=data.tree(grown),
        regulariser=regulariser,
        log_likelihood=grown.log_likelihood / float(truth.data.sum(dtype=np.float64)),
        held_out=held_out,
    )


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The projection, and the projected documents."""

    mean: Float32[Tensor, dim]
    components: Float32[Tensor, "k dim"]
    features: Float32[Tensor, "document k"]
    truth: Float32[csr_array, "document label"]

    def tree(self, grown: GrownTree) -> LabelTree:
        """Return the tree of these nodes and the projection."""
        return LabelTree.from_arrays(
            {
                "mean": self.mean.numpy(),
                "components": self.components.numpy(),
                "weights": grown.weights,
                "biases": grown.biases,
                "label_of_leaf": grown.label_of_leaf,
            }
        )


def _prepare(
    vectors: Float32[np.ndarray, "document dim"],
    truth: Float32[csr_array, "document label"],
    num_components: int,
) -> _Prepared:
    tensor = torch.from_numpy(vectors)
    check_finite(tensor)
    mean, components = principal_components(tensor, num_components)
    return _Prepared(mean, components, project(tensor, mean, components), truth)


def principal_components(
    vectors: Float32[Tensor, "document dim"], num_components: int
) -> tuple[Float32[Tensor, dim], Float32[Tensor, "k dim"]]:
    """Return the mean and the first principal components of vectors.

    `longtail.models.label_tree.tree.project` uses them.

    Unlike the paper's, the components are divided by one number, so that the projected vectors have
    a mean square of 1 an entry: lambda_n then means the same for every encoder.
    """
    dim = vectors.shape[1]
    mean = torch.zeros(dim, dtype=torch.float64)
    covariance = torch.zeros((dim, dim), dtype=torch.float64)
    parts = torch.split(vectors, _DOCUMENTS_AT_A_TIME)
    for part in parts:
        mean += part.double().sum(0) / len(vectors)
    for part in parts:
        centred = part.double() - mean
        covariance += centred.T @ centred / len(vectors)
    variances, directions = torch.linalg.eigh(covariance)  # rising
    components = directions[:, -num_components:].flip(1).T
    # A direction's sign is arbitrary: its largest entry decides.
    components = components * components.gather(1, components.abs().argmax(1, True)).sign()
    scale = variances[-num_components:].clamp(min=0).mean().sqrt()
    if float(scale) > 0:
        components = components / scale
    return mean.float(), components.float()


def _cross_validate(data: _Prepared, seed: int) -> dict[float, float]:
    """Return nats a pair on documents left out, by lambda_n, around the best power of ten.

    From 1 upwards, then downwards, as long as it gets better.
    """
    folds = np.random.default_rng(seed).permutation(len(data.features)) % _NUM_FOLDS
    held_out = {1.0: _held_out(data, folds, 1.0)}
    for exponents in (range(1, _EXPONENTS.stop), range(-1, _EXPONENTS.start - 1, -1)):
        for exponent in exponents:
            best = max(held_out.values())
            held_out[10.0**exponent] = _held_out(data, folds, 10.0**exponent)
            if held_out[10.0**exponent] <= best:
                break
    return held_out


def _held_out(data: _Prepared, folds: Int64[np.ndarray, document], regulariser: float) -> float:
    """Return nats a pair over all folds, each under a tree fitted to the others."""
    total = 0.0
    for fold in range(_NUM_FOLDS):
        kept, left_out = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        features = data.features[torch.from_numpy(kept)]
        what = f"lambda {regulariser:g}, fold {fold + 1} of {_NUM_FOLDS}"
        grown = _grow(features, data.truth[kept], regulariser, what)
        total += _log_likelihood(data, data.tree(grown), left_out)
    return total / float(data.truth.data.sum(dtype=np.float64))


def _grow(
    features: Float32[Tensor, "document k"],
    truth: Float32[csr_array, "document label"],
    regulariser: float,
    what: str,
) -> GrownTree:
    num_levels = depth_of(truth.shape[1])
    with progress_bar(total=num_levels, desc=what, unit="level") as bar:
        return grow_tree(features, truth, regulariser, bar.update)


def _log_likelihood(
    data: _Prepared, tree: LabelTree, documents: Int64[np.ndarray, held_out]
) -> float:
    pairs = coo_array(data.truth[documents])
    return tree.log_likelihood(
        data.features,
        torch.from_numpy(documents[pairs.row]),
        torch.from_numpy(pairs.col.astype(np.int64)),
        torch.from_numpy(pairs.data),
    )


def kept_tree(
    vectors: Callable[[], Float32[np.ndarray, "document dim"]],
    truth: Float32[csr_array, "document label"],
    config: TreeFitConfig,
    *,
    seed: int,
    folder: Path,
) -> LabelTree:
    """Return the label tree of a folder, or fit it and save it there."""

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
