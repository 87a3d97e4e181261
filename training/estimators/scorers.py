"""Ranking metrics as scikit-learn takes them: `cross_validate(..., scoring=precision_at_k(5))`.

The metrics are those of `longtail.models.metrics`, for any estimator that has
`classes_` and `decision_function` or `predict_proba`. What a sparse result does not store is not
ranked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Int64
from scipy.sparse import csr_array, issparse

from longtail.models.metrics import (
    METRICS,
    RankedEvaluation,
    inverse_propensities,
    join_truth,
)
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.estimators.targets import InvalidInputError, truth_for, truth_of_matrix

Measure = Literal["P", "nDCG", "PSP"]
_Counts = tuple[np.ndarray, int]
"""Training documents of each class, and of all: propensities are made of them."""


@dataclass(frozen=True, slots=True, eq=False)
class RankingScorer:
    """Metrics that scikit-learn calls with a fitted estimator, texts and labels.

    Attributes:
        measures: P, nDCG or PSP; several give a dictionary.
        k: Number of positions that count.
        training: For PSP; None: what the estimator was fitted on, which a `LongtailClassifier`
            tells.
    """

    measures: tuple[Measure, ...]
    k: int
    training: _Counts | None = None

    def __call__(self, estimator: Any, texts: Any, y: Any) -> float | dict[str, float]:
        """Return the metric, or several by name, as fractions.

        Args:
            estimator: A fitted one.
            texts: What it takes.
            y: A matrix of 0 and 1, or lists of labels.

        Raises:
            InvalidInputError: k is below 1; the estimator ranks fewer than k labels, gives no
                scores, or for PSP does not tell what it was fitted on; or the labels are not as
                many as its classes.
            DataError: There are no texts, or not as many as labels.
        """
        truth = truth_for(y, np.asarray(estimator.classes_))
        joined = join_truth(ranked_classes(_scores(estimator, texts), self.k), truth)
        found = {f"{name}@{self.k}": self._value(name, joined, estimator) for name in self.measures}
        return found if len(found) > 1 else next(iter(found.values()))

    def _value(self, measure: Measure, joined: RankedEvaluation, estimator: Any) -> float:
        weights = np.ones(joined.num_labels)
        if measure == "PSP":
            counts, num_documents = self.training or _counts_of(estimator)
            missing = joined.num_labels - len(counts)  # labels that are no classes
            weights = inverse_propensities(np.pad(counts, (0, missing)), num_documents)
        value = METRICS[measure].value
        assert value is not None
        return value(joined, self.k, weights)


def precision_at_k(k: int = 5) -> RankingScorer:
    """Return P@k as a scorer: the mean share of right labels among the first k.

    Args:
        k: Number of positions that count.
    """
    return RankingScorer(("P",), k)


def ndcg_at_k(k: int = 5) -> RankingScorer:
    """Return nDCG@k as a scorer: right labels count more the higher they stand.

    Args:
        k: Number of positions that count.
    """
    return RankingScorer(("nDCG",), k)


def psp_at_k(k: int = 5, y: Any = None) -> RankingScorer:
    """Return PSP@k as a scorer: right labels count more the rarer they were in training.

    Propensities are those of Jain et al. 2016, with A = 0.55 and B = 1.5, of how many training
    documents carry a label.

    Args:
        k: Number of positions that count.
        y: Training labels to count in, a matrix of 0 and 1: give it where estimators are compared
            that don't tell what they were fitted on, as all but `LongtailClassifier`. None: what
            the estimator was fitted on, so in cross-validation the training part of each fold.

    Raises:
        InvalidInputError: It is no such matrix.
    """
    return RankingScorer(("PSP",), k, _counted(y))


def metrics_at_k(k: int = 5, y: Any = None) -> RankingScorer:
    """Return P@k, nDCG@k and PSP@k as one `scoring`, for which each text is labelled once.

    Args:
        k: Number of positions that count.
        y: As for `psp_at_k`.

    Raises:
        InvalidInputError: It is no such matrix.
    """
    return RankingScorer(("P", "nDCG", "PSP"), k, _counted(y))


def ranked_classes(scores: Any, k: int) -> Int64[np.ndarray, "document k"]:
    """Return the k best columns of each row, the smaller one first of equal scores.

    Args:
        scores: Sparse or dense, of shape (documents, classes); of a sparse matrix only what is
            stored is ranked. Where there are fewer than k classes, `NO_LABEL` fills the rows.
        k: At least 1.

    Raises:
        InvalidInputError: k is below 1, they are no matrix, or no row has min(k, classes) of them.
    """
    if k < 1:
        raise InvalidInputError(f"k is {k}; expected at least 1")
    if getattr(scores, "ndim", 0) != 2:
        raise InvalidInputError(
            f"the estimator's scores are a {type(scores).__name__}, expected a matrix of shape "
            "(documents, classes)"
        )
    ranking = np.full((scores.shape[0], k), NO_LABEL, dtype=np.int64)
    widest = 0
    for row, (columns, values) in enumerate(_rows(scores)):
        best = columns[np.argsort(-values, kind="stable")[:k]]
        ranking[row, : len(best)] = best
        widest = max(widest, len(best))
    if len(ranking) and widest < min(k, scores.shape[1]):
        raise InvalidInputError(
            f"the estimator gives at most {widest} labels of a text a score, and {k} are measured; "
            f"set its parameter k to {k}, or measure at {widest}"
        )
    return ranking


def _rows(scores: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    if not issparse(scores):
        columns = np.arange(scores.shape[1])
        yield from ((columns, row) for row in np.asarray(scores))
        return
    matrix = csr_array(scores)
    matrix.sort_indices()
    for start, stop in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        yield matrix.indices[start:stop], matrix.data[start:stop]


def _scores(estimator: Any, texts: Any) -> Any:
    for name in ("decision_function", "predict_proba"):
        if hasattr(estimator, name):
            return getattr(estimator, name)(texts)
    raise InvalidInputError(
        f"{type(estimator).__name__} has neither decision_function nor predict_proba to rank by"
    )


def _counts_of(estimator: Any) -> _Counts:
    bundle = getattr(_innermost(estimator), "bundle_", None)
    if bundle is None:
        raise InvalidInputError(
            f"PSP needs to know how often {type(estimator).__name__} saw each label, which it does "
            "not tell; give the labels to count in: psp_at_k(k, y)"
        )
    return bundle.catalogue.training_counts, bundle.manifest.training_document_count


def _innermost(estimator: Any) -> Any:
    """Return the estimator that a search has chosen, or the last one of a pipeline."""
    if hasattr(estimator, "best_estimator_"):
        return _innermost(estimator.best_estimator_)
    return _innermost(estimator.steps[-1][1]) if hasattr(estimator, "steps") else estimator


def _counted(y: Any) -> _Counts | None:
    if y is None:
        return None
    truth = truth_of_matrix(y)
    counts = np.bincount(truth.indices, minlength=truth.shape[1]).astype(np.int64)
    return counts, truth.shape[0]
