"""The linear scorer of a run: frozen document vectors, the label tree, Adagrad (Bamler & Mandt).

Each of the three is kept in the run's folder when it is done, and training itself has checkpoints.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Float64
from scipy.sparse import csr_array

from longtail.models.scorers.linear import LinearModel, LinearScorer
from longtail.training.configuration.sections import LinearConfig
from longtail.training.label_tree.fit import kept_tree
from longtail.training.linear.objective import make_pair_objective
from longtail.training.linear.trainer import LinearOptions, train_linear

logger = logging.getLogger(__name__)


def train_linear_scorer(
    vectors: Float32[np.ndarray, "document dim"],
    truth: Float32[csr_array, "document label"],
    config: LinearConfig,
    *,
    seed: int,
    device: str,
    folder: Path,
) -> LinearScorer:
    """Train the linear scorer, resuming after what the folder holds.

    It is trained on vectors that are centred and have a mean square length of 1, so that a learning
    rate means the same for every encoder; its weights are then turned into those of the vectors as
    they are. The given vectors are changed in place.

    Returns:
        The scorer; labels without training documents have no row in it.
    """
    config = _fitted_to_corpus(config, truth)
    tree = None
    if config.tree_fit is not None:
        tree = kept_tree(lambda: vectors, truth, config.tree_fit, seed=seed, folder=folder)
    objective = make_pair_objective(config.learning, vectors, truth, tree=tree, device=device)
    options = LinearOptions(
        learning_rate=config.learning_rate,
        batch_size=config.batch_size,
        epochs=config.epochs,
        exclude=config.negatives.exclude,
        seed=seed,
        device=device,
    )
    mean, scale = standardise(vectors)
    model = train_linear(vectors, truth, objective, options, folder / "steps")
    correction = config.correction
    return LinearScorer(
        _of_trained_labels(unstandardised(model, mean, scale), truth),
        correction,
        tree if correction == "tree" else None,
    )


def _fitted_to_corpus(
    config: LinearConfig, truth: Float32[csr_array, "document label"]
) -> LinearConfig:
    counts = np.bincount(truth.indices, minlength=truth.shape[1])
    num_labels = int(np.count_nonzero(counts))
    carried = (truth @ np.sqrt(counts)).max() / np.sqrt(counts).sum()
    fitted = config.fitted_to(num_labels, float(carried))
    if fitted != config:
        logger.warning(
            "linear: %d labels have training documents, of which one document carries up to "
            "%.0f%%: too few others for the default of %d negatives a step; all labels are scored "
            "instead",
            num_labels,
            100 * carried,
            config.negatives.num_negatives,
        )
    return fitted


def standardise(
    vectors: Float32[np.ndarray, "document dim"],
) -> tuple[Float64[np.ndarray, dim], float]:
    """Centre vectors and divide them by one number, in place: a mean square length of 1.

    Returns:
        The mean, and the number; 1 where all vectors are equal.
    """
    mean = vectors.mean(axis=0, dtype=np.float64)
    vectors -= mean.astype(np.float32)
    lengths = np.einsum("ij,ij->i", vectors, vectors)
    scale = float(np.sqrt(lengths.mean(dtype=np.float64))) or 1.0
    vectors /= np.float32(scale)
    return mean, scale


def unstandardised(model: LinearModel, mean: Float64[np.ndarray, dim], scale: float) -> LinearModel:
    """Return the model of vectors as they were before `standardise` gave this mean and scale."""
    weight = model.weight / np.float32(scale)
    shift = (weight @ mean).astype(np.float32)
    return LinearModel(weight=weight, bias=model.bias - shift, labels=model.labels)


def _of_trained_labels(
    model: LinearModel, truth: Float32[csr_array, "document label"]
) -> LinearModel:
    """Return the rows of the labels that have training documents; the others learned nothing."""
    labels = np.unique(truth.indices).astype(np.int64)
    return LinearModel(model.weight[labels], model.bias[labels], labels)
