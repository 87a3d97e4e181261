"""Linear SVMs for many labels, each against the documents that matter to it.

With few documents, every label is trained on all of them (exact one-versus-all). With many, on a
working set: its positives; the documents without it that its own previous weights rank highest; and
a uniform sample of the rest, weighted to stand for all of it. So the objective is an unbiased
estimate of the exact one, whose variance the hard documents, being in it for sure, do not add to.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from training.config import SparseConfig

_MAX_ITERATIONS = 100  # of liblinear; the ranking no longer changes long before it converges
_TOLERANCE = 0.1  # liblinear's own default for its dual solver
_CENTROID_BELOW = 0.02  # smaller weights of a centroid are left out of the first search
_SEARCH_BELOW = 0.1  # smaller weights of a classifier are left out of later ones


@dataclass(frozen=True, slots=True)
class SvmProblem:
    """What the classifiers of all labels share.

    Attributes:
        features: Training documents; in float64 where every label takes them all, for liblinear
            would turn them into that for each.
        by_feature: The same transposed, in float32, to rank documents with; None where every label
            is trained on all documents.
        by_label: The documents of each label.
        config: Loss, cost, pruning and sizes of the working sets.
        seed: Of the samples and of liblinear's shuffling.
    """

    features: Float[csr_array, "document feature"]
    by_feature: Float32[csr_array, "feature document"] | None
    by_label: Float32[csr_array, "label document"]
    config: SparseConfig
    seed: int

    def positives(self, label: int) -> Int64[np.ndarray, "positive"]:
        """Return the documents that carry a label."""
        begin, end = self.by_label.indptr[label : label + 2]
        return np.asarray(self.by_label.indices[begin:end], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class FittedLabel:
    """One label's classifier.

    Attributes:
        weights: w, pruned.
        bias: b.
        hard: Documents without the label that it was trained against as hard negatives.
    """

    weights: Float32[csr_array, "one feature"]
    bias: float
    hard: Int64[np.ndarray, "hard"]


def fit_labels(
    problem: SvmProblem,
    labels: Int64[np.ndarray, "chunk"],
    before: list[FittedLabel] | None,
) -> list[FittedLabel]:
    """Fit some labels, one after the other.

    Args:
        problem: Documents and labels.
        labels: Those to fit.
        before: Their classifiers of the round before, whose hard negatives are kept and whose
            weights find further ones; None in the first round, in which the mean of a label's
            documents ranks the others.
    """
    if problem.by_feature is None:
        nothing = np.empty(0, dtype=np.int64)
        return [_fit_exactly(problem, label, nothing) for label in labels.tolist()]
    hard = _hard_documents(problem, labels, before)
    return [
        _fit_working_set(problem, label, documents)
        for label, documents in zip(labels.tolist(), hard, strict=True)
    ]


def _hard_documents(
    problem: SvmProblem, labels: Int64[np.ndarray, "chunk"], before: list[FittedLabel] | None
) -> list[Int64[np.ndarray, "hard"]]:
    """Return the documents that each label's weights rank highest among those without it."""
    if before is None:
        found = [np.empty(0, dtype=np.int64)] * len(labels)
        directions = _centroids(problem, labels)
    else:
        found = [fitted.hard for fitted in before]
        weights = [_above(fitted.weights, _SEARCH_BELOW) for fitted in before]
        directions = stacked(weights, problem.features.shape[1])
    scores = csr_array(directions @ problem.by_feature)  # (label, document)
    config = problem.config
    for i, label in enumerate(labels.tolist()):
        begin, end = scores.indptr[i : i + 2]
        documents, values = scores.indices[begin:end], scores.data[begin:end]
        positives = problem.positives(label)
        is_wrong = ~np.isin(documents, positives, assume_unique=True)
        documents, values = documents[is_wrong], values[is_wrong]
        count = config.hard_negatives + config.hard_negatives_per_positive * len(positives)
        if len(documents) > count:
            documents = documents[np.argpartition(-values, count)[:count]]
        found[i] = np.union1d(found[i], documents.astype(np.int64))
    return found


def _centroids(
    problem: SvmProblem, labels: Int64[np.ndarray, "chunk"]
) -> Float32[csr_array, "chunk feature"]:
    rows = problem.by_label[labels]
    sizes = np.diff(rows.indptr)
    means = csr_array((1 / np.repeat(sizes, sizes), rows.indices, rows.indptr), shape=rows.shape)
    return _above(csr_array(means @ problem.features, dtype=np.float32), _CENTROID_BELOW)


def _above(weights: csr_array, least: float) -> Float32[csr_array, "row feature"]:
    """Return the weights of at least this magnitude."""
    kept = csr_array(weights, copy=True)
    kept.data[np.abs(kept.data) < least] = 0
    kept.eliminate_zeros()
    return kept


def stacked(rows: list[csr_array], num_features: int) -> Float32[csr_array, "row feature"]:
    """Return one-row matrices as one; unlike scipy's vstack, cheap for many short rows."""
    starts = np.cumsum([0, *(row.nnz for row in rows)])
    data = np.concatenate([row.data for row in rows])
    indices = np.concatenate([row.indices for row in rows])
    return csr_array((data, indices, starts), shape=(len(rows), num_features))


def _fit_working_set(
    problem: SvmProblem, label: int, hard: Int64[np.ndarray, "hard"]
) -> FittedLabel:
    """Fit one label on its positives, its hard negatives, and a weighted sample of the rest."""
    num_documents = problem.features.shape[0]
    positives = problem.positives(label)
    chosen = np.concatenate([positives, hard])
    rng = np.random.default_rng([problem.seed, label])
    size = min(problem.config.sampled_negatives, num_documents)
    sample = np.setdiff1d(rng.choice(num_documents, size=size, replace=False), chosen)
    num_left_out = num_documents - len(chosen)
    weight = np.ones(len(chosen) + len(sample))
    weight[len(chosen) :] = num_left_out / max(1, len(sample))
    rows = np.concatenate([chosen, sample])
    target = np.zeros(len(rows))
    target[: len(positives)] = 1.0
    return _fit(problem, problem.features[rows], target, weight, hard)


def _fit_exactly(problem: SvmProblem, label: int, hard: Int64[np.ndarray, "hard"]) -> FittedLabel:
    """Fit one label on all documents."""
    target = np.zeros(problem.features.shape[0])
    target[problem.positives(label)] = 1.0
    return _fit(problem, problem.features, target, None, hard)


def _fit(
    problem: SvmProblem,
    features: csr_array,
    target: Float64[np.ndarray, "row"],
    weight: Float64[np.ndarray, "row"] | None,
    hard: Int64[np.ndarray, "hard"],
) -> FittedLabel:
    num_features = features.shape[1]
    if target.all():  # every document carries the label: there is nothing to tell apart
        return FittedLabel(csr_array((1, num_features), dtype=np.float32), 1.0, hard)
    svm = LinearSVC(
        loss=problem.config.loss,
        C=problem.config.cost,
        dual=True,
        tol=_TOLERANCE,
        max_iter=_MAX_ITERATIONS,
        random_state=problem.seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # see _MAX_ITERATIONS
        svm.fit(features, target, sample_weight=weight)
    weights = _pruned(svm.coef_[0], problem.config.prune_below)
    return FittedLabel(weights, float(svm.intercept_[0]), hard)


def _pruned(
    weights: Float64[np.ndarray, "feature"], prune_below: float
) -> Float32[csr_array, "one feature"]:
    kept = np.flatnonzero(np.abs(weights) >= max(prune_below, np.finfo(np.float32).tiny))
    values = weights[kept].astype(np.float32)
    return csr_array((values, kept, [0, len(kept)]), shape=(1, len(weights)))
