"""The cost of frequent labels' errors, chosen on documents that no classifier is trained on.

The best cost differs between corpora, and all of them would take as many trainings. So a sample of
the frequent labels is trained with each, and ranked among itself for the dev split.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64
from scipy.sparse import csr_array

from longtail.models.ray_runtime import LOCAL, Executor
from longtail.training.configuration.sections import AUTO, DEFAULT_COST, SparseConfig
from longtail.training.evaluation.metrics import document_values_at, join_truth
from longtail.training.fitting import DevDocuments
from longtail.training.sparse.fit import fit_label_rows

logger = logging.getLogger(__name__)

CANDIDATES = (0.5, 2.0)
"""Tried one after the other, until one is better than `DEFAULT_COST`."""
_LEAST_DOCUMENTS = 10
"""Of a frequent label: `sparse.rare_cost` is that of the others."""
_MOST_LABELS, _FEW_LABELS = 400, 200
"""That are trained; of fewer than 4,000 labels a tenth, but 200 where there are as many."""
_MOST_DOCUMENTS, _FEWEST_DOCUMENTS = 2000, 100
_CUT_OFF = 10
_Z = 1.96
"""Standard errors of a mean gain from which on it is beyond chance."""


def with_cost_chosen(
    config: SparseConfig,
    features: csr_array,
    truth: csr_array,
    dev: Callable[[], DevDocuments | None],
    *,
    seed: int,
    folder: Path,
    engine: Executor = LOCAL,
) -> SparseConfig:
    """Return settings whose cost is a number: that given, or one by which dev is ranked best.

    It is `DEFAULT_COST` unless another one has a higher nDCG@10 of some labels, beyond chance.

    Args:
        config: Of the sparse model.
        features: Training documents.
        truth: Their labels.
        dev: Gives the documents to choose on; None where there are none.
        seed: Of all that is random.
        folder: Keeps what is trained.
        engine: What trains.

    Raises:
        ConfigError: Ray was requested, but is not installed or does not start.
    """
    if config.cost != AUTO:
        return config
    labels = _sample(truth)
    documents = dev() if len(labels) > 1 else None
    some = None if documents is None else _of_labels(documents, labels)
    if some is None:
        return config.model_copy(update={"cost": DEFAULT_COST})
    before = None
    for cost in (DEFAULT_COST, *CANDIDATES):
        own = config.model_copy(update={"cost": cost})
        weights, bias = fit_label_rows(
            features, truth, labels, own, seed=seed, folder=folder / f"{cost:g}", engine=engine
        )
        values = _ndcg((some.features @ csr_array(weights.T)).toarray() + bias, some.truth)
        before = values if before is None else before
        gain = 100 * (values - before)
        mean, error = float(gain.mean()), float(gain.std() / np.sqrt(len(gain)))
        logger.info(
            "sparse: cost %g: nDCG@%d of %d frequent labels on %d documents of dev %.2f, "
            "gain %.2f (standard error %.2f)",
            cost, _CUT_OFF, len(labels), len(gain), 100 * values.mean(), mean, error,
        )  # fmt: skip
        if mean > _Z * error:
            return own
    return config.model_copy(update={"cost": DEFAULT_COST})


def _sample(truth: csr_array) -> Int64[np.ndarray, sampled]:
    """Return some frequent labels, rising, at equal distances in the order of their frequency."""
    counts = np.bincount(truth.indices, minlength=truth.shape[1])
    order = np.argsort(-counts, kind="stable")[: int((counts >= _LEAST_DOCUMENTS).sum())]
    most = min(_MOST_LABELS, max(_FEW_LABELS, int((counts > 0).sum()) // 10))
    places = np.linspace(0, len(order) - 1, min(len(order), most)).astype(np.int64)
    return np.sort(order[places]).astype(np.int64)


def _of_labels(dev: DevDocuments, labels: Int64[np.ndarray, sampled]) -> DevDocuments | None:
    """Return some documents that carry one of the labels, with these labels; None: too few do."""
    truth = csr_array(dev.truth[:, labels])
    rows = np.flatnonzero(np.diff(truth.indptr))
    rows = rows[:: max(1, -(-len(rows) // _MOST_DOCUMENTS))]
    if len(rows) < _FEWEST_DOCUMENTS:
        return None
    return DevDocuments(csr_array(dev.features[rows]), csr_array(truth[rows]))


def _ndcg(scores: np.ndarray, truth: csr_array) -> Float64[np.ndarray, document]:
    """Return nDCG@10 of each document, whose labels are ranked by their scores."""
    k = min(_CUT_OFF, scores.shape[1])
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    values = document_values_at(join_truth(best, truth), k, np.ones(truth.shape[1]))
    return values[f"nDCG@{k}"]
