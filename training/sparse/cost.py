"""The cost of frequent labels' errors, chosen on documents that no classifier is trained on.

The best cost differs between corpora. Labels are trained one by one, so another cost of the
frequent ones takes their rows alone.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
from jaxtyping import Float64
from joblib import cpu_count
from scipy.sparse import csr_array

from longtail.models.metrics import document_values_at, join_truth
from longtail.models.scorers.sparse import SparseModel, SparseSource
from longtail.training.configuration.sections import AUTO, DEFAULT_COST, SparseConfig
from longtail.training.fitting import DevDocuments
from longtail.training.sparse.fit import LabelEngine, fit_label_columns, fit_on_threads

logger = logging.getLogger(__name__)

LOW_COST = 0.5
_LEAST_DOCUMENTS = 10
"""Training documents of a frequent label; `sparse.rare_cost` is the cost of the others."""
_MOST_DEV, _FEWEST_DEV = 2000, 100
_CUT_OFF = 5
_Z = 1.96
"""Standard errors of a mean gain from which on it is beyond chance."""


def with_cost_chosen(
    model: SparseModel,
    features: csr_array,
    truth: csr_array,
    dev: DevDocuments | None,
    config: SparseConfig,
    *,
    seed: int,
    folder: Path,
    engine: LabelEngine = fit_on_threads,
) -> tuple[SparseModel, SparseConfig]:
    """Return a model, and its settings with a number as the cost of frequent labels.

    Where the settings leave it open, `LOW_COST` takes the place of `DEFAULT_COST` if it ranks the
    dev split better by nDCG@5, beyond chance.

    Args:
        model: Fitted with these settings; it has `DEFAULT_COST` where they leave it open.
        features: Training documents.
        truth: Their labels.
        dev: The documents to choose on; None: there are none.
        config: Its settings.
        seed: Seed of all that is random.
        folder: Keeps what is trained.
        engine: What trains.
    """
    if config.cost != AUTO:
        return model, config
    first, second = (config.model_copy(update={"cost": x}) for x in (DEFAULT_COST, LOW_COST))
    counts = np.bincount(truth.indices, minlength=truth.shape[1])
    labels = model.labels[counts[model.labels] >= _LEAST_DOCUMENTS]
    some = _some(dev) if len(labels) else None
    if some is None:
        return model, first
    weights, bias = fit_label_columns(
        features, truth, labels, second, seed=seed, folder=folder, engine=engine
    )
    other = model.with_columns(labels, weights, bias)
    is_better, gain = gain_on_dev((model, some), (other, some))
    logger.info(
        "sparse: with a cost of %g instead of %g for %d frequent labels, %s",
        LOW_COST, DEFAULT_COST, len(labels), gain,
    )  # fmt: skip
    return (other, second) if is_better else (model, first)


def gain_on_dev(
    model: tuple[SparseModel, DevDocuments], other: tuple[SparseModel, DevDocuments]
) -> tuple[bool, str]:
    """Return whether another model ranks dev better by nDCG@5, beyond chance; and how, in words.

    Each has its own features of the same documents.
    """
    gain = 100 * (_ndcg(*other) - _ndcg(*model))
    mean, error = float(gain.mean()), float(gain.std() / np.sqrt(len(gain)))
    words = (
        f"nDCG@{_CUT_OFF} on {len(gain)} documents of dev changes by {mean:.2f} points (standard "
        f"error {error:.2f})"
    )
    return mean > _Z * error, words


def _some(dev: DevDocuments | None) -> DevDocuments | None:
    """Return some of the documents, spread; None: there are too few."""
    if dev is None or dev.truth.shape[0] < _FEWEST_DEV:
        return None
    step = -(-dev.truth.shape[0] // _MOST_DEV)
    return DevDocuments(csr_array(dev.features[::step]), csr_array(dev.truth[::step]))


def _ndcg(model: SparseModel, dev: DevDocuments) -> Float64[np.ndarray, document]:
    """Return nDCG@5 of each document."""
    source = SparseSource(model, dev.features, num_threads=cpu_count())
    k = min(_CUT_OFF, dev.truth.shape[1])
    found = source.top(np.arange(source.num_queries, dtype=np.int64), k)
    values = document_values_at(join_truth(found.labels, dev.truth), k, np.ones(dev.truth.shape[1]))
    return values[f"nDCG@{k}"]
