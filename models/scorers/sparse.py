"""The sparse model: tf-idf of words and phrases, a sparse weight vector a label (DEPL section 3.2).

Stored as plain arrays: a vocabulary (JSON) and CSR weights (safetensors); see
`longtail.training.sparse.fit` for how they are learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.models.labels.selection import Selection
from longtail.models.matrices import (
    Rows,
    column_norms,
    csr_of_parts,
    elements_of,
    rows_of_columns,
    transposed,
)
from longtail.models.native.library import CSR, F32, I64, INT, Csr, RowsLike, csr, function
from longtail.models.ranking.top_k import NO_LABEL, Ranking, in_row_parts, nothing
from longtail.models.scorers.tfidf import TfidfModel

MAX_KEPT = 2**24
"""Most sums of one batch that are kept: 64 MiB."""

_best_of_rows = function(
    "sparse_best_of_rows", features=CSR, weights=CSR, bias=F32["num_labels"], num_labels=INT,
    k=INT, labels=I64.out["features.num_rows k"], scores=F32.out["features.num_rows k"],
)  # fmt: skip
_scores_of_labels = function(
    "sparse_scores_of_labels", features=CSR, weights=CSR, bias=F32["num_labels"], num_labels=INT,
    labels=I64["features.num_rows m"], m=INT, scores=F32.out["features.num_rows m"],
)  # fmt: skip
_sum_up = function(
    "sparse_sum_up", features=CSR, weights=CSR, rows=I64["num_rows"], num_rows=INT,
    sums=F32.out["place num_labels"], num_labels=INT,
)  # fmt: skip
_best_of_sums = function(
    "sparse_best_of_sums", sums=F32["place num_labels"], rows=I64["num_rows"], num_rows=INT,
    bias=F32["num_labels"], num_labels=INT, k=INT, labels=I64.out["num_rows k"],
    scores=F32.out["num_rows k"],
)  # fmt: skip


@dataclass(frozen=True)
class SparseModel:
    """Linear scores of labels over tf-idf features: f_sparse(x, l) = <phi_t(x), w_l> + b_l.

    Attributes:
        tfidf: The features phi_t.
        weights_by_feature: The w_l of each label with a classifier as columns: a query then costs
            what its own tokens weigh, not all tokens.
        bias: b_l of each of them.
        labels: The label index of each of them, rising; labels without training documents have
            none.
    """

    tfidf: TfidfModel
    weights_by_feature: Float32[csr_array, "feature covered"]
    bias: Float32[np.ndarray, covered]
    labels: Int64[np.ndarray, covered]

    @classmethod
    def of_rows(
        cls,
        tfidf: TfidfModel,
        weights: Float32[csr_array, "covered feature"],
        bias: Float32[np.ndarray, covered],
        labels: Int64[np.ndarray, covered],
    ) -> SparseModel:
        """Return the model with these rows w_l."""
        return cls(tfidf, transposed(weights), bias, labels)

    def with_columns(
        self,
        labels: Int64[np.ndarray, fitted],
        weights: Float32[csr_array, "feature fitted"],
        bias: Float32[np.ndarray, fitted],
        dropped: Int64[np.ndarray, dropped] | None = None,
    ) -> SparseModel:
        """Return the model with these weights of some labels, instead of theirs if they have any.

        Args:
            labels: The labels.
            weights: The w_l of each, as columns; memory is that of the weights of both models.
            bias: Bias of each label.
            dropped: Labels whose rows are left out; None: those of `labels` alone.
        """
        is_kept = ~np.isin(self.labels, labels if dropped is None else dropped)
        all_labels = np.sort(np.concatenate([self.labels[is_kept], labels]))
        of_kept, of_new = (np.searchsorted(all_labels, x) for x in (self.labels, labels))
        all_weights = csr_of_parts(
            lambda: chain(
                elements_of(self.weights_by_feature, np.where(is_kept, of_kept, -1)),
                elements_of(weights, of_new),
            ),
            (weights.shape[0], len(all_labels)),
        )
        all_bias = np.empty(len(all_labels), dtype=np.float32)
        all_bias[of_kept[is_kept]], all_bias[of_new] = self.bias[is_kept], bias
        return replace(self, weights_by_feature=all_weights, bias=all_bias, labels=all_labels)

    @cached_property
    def weights(self) -> Float32[csr_array, "covered feature"]:
        """One row w_l for each label with a classifier: all in memory, once anyone asks."""
        return transposed(self.weights_by_feature)

    @cached_property
    def native_weights(self) -> Csr:
        """The weights by feature, as compiled loops take them."""
        return csr(self.weights_by_feature)

    def rows(self, rows: Int64[np.ndarray, row]) -> Float32[csr_array, "row feature"]:
        """Return w_l of some labels, by one pass over the weights of all."""
        return rows_of_columns(self.weights_by_feature, rows)

    @cached_property
    def norms(self) -> Float32[np.ndarray, covered]:
        """Length of each w_l."""
        return column_norms(self.weights_by_feature)


@dataclass(frozen=True, slots=True)
class Sums:
    """Scores of rows without the labels' biases.

    Attributes:
        values: In any order of the rows.
        places: Position of each row in `values`.
    """

    values: Float32[np.ndarray, "place covered"]
    places: Int64[np.ndarray, row]

    def take(self, rows: Sequence[int] | Int64[np.ndarray, row] | slice) -> Sums:
        """Return those of some rows."""
        return Sums(self.values, self.places[rows])


NO_SUMS = Sums(np.empty((0, 0), dtype=np.float32), np.empty(0, dtype=np.int64))


class SparseSource:
    """The `Source` of one batch of tf-idf rows over a sparse model.

    Attributes:
        num_queries: Rows of the batch.
        labels: The labels with a classifier, rising.
        bias: Bias of each of `labels`; the score is the sum of a row plus this, in float32.
        weights: Weights of each of `labels`, by feature, as compiled loops take them.
        num_threads: Threads that rank many rows at the same time.
        sums: Sums of each row; None: they are not made yet, or too many to be kept.
        rows_a_part: That a thread ranks at a time; None: the default of `in_row_parts`.
    """

    def __init__(
        self,
        model: SparseModel,
        features: RowsLike,
        *,
        bias: Float32[np.ndarray, covered] | None = None,
        num_threads: int = 1,
        sums: Sums | None = None,
    ) -> None:
        """Bind the features to the model.

        Args:
            model: The classifiers.
            features: What they score.
            bias: Bias of each row instead of the model's; None: the model's.
            num_threads: That rank at the same time, where there are many rows.
            sums: Sums of each row, by `all_sums`; None: they are made when they are needed.
        """
        self._model = model
        self._features = Rows(features.indptr, features.indices, features.data)
        self.bias = model.bias if bias is None else bias
        self.num_threads = num_threads
        self.num_queries = len(features.indptr) - 1
        self.labels, self.weights = model.labels, model.native_weights
        self.sums, self._num_labels = sums, len(model.labels)
        self.rows_a_part = None if sums is None else -(-self.num_queries // num_threads)

    def among(self, selection: Selection) -> SparseSource:
        """Return the source of the selected labels alone: the others have the score -inf."""
        other = copy(self)
        is_selected = selection.is_selected[self.labels]
        other.bias = np.where(is_selected, self.bias, np.float32(-np.inf))
        other._num_labels = int(is_selected.sum())
        return other

    @property
    def num_labels(self) -> int:
        """Number of labels that can be scored; 1 where there are none."""
        return max(1, self._num_labels)

    def features(self, rows: slice) -> Rows:
        """Return the tf-idf rows of some queries."""
        return Rows.part_of(self._features, rows)

    def top(self, rows: Int64[np.ndarray, row], m: int) -> Ranking:
        """Return the m best labels of these queries (see `Source.top`)."""
        model, k = self._model, min(m, self._num_labels)
        if not k:
            return nothing(len(rows), m)
        sums, bias, num_labels = self._summed(), self.bias, len(self.bias)
        found = np.empty((len(rows), k), dtype=np.int64)
        scores = np.empty((len(rows), k), dtype=np.float32)

        def best(part: slice) -> None:
            out = (k, found[part], scores[part])
            if sums is not None:
                places = sums.places[rows[part]]
                _best_of_sums(sums.values, places, len(places), bias, num_labels, *out)
            else:
                _best_of_rows(self._features.take(rows[part]), self.weights, bias, num_labels, *out)

        in_row_parts(best, len(rows), self.num_threads, self.rows_a_part)
        missing = ((0, 0), (0, m - k))
        return Ranking(
            labels=np.pad(model.labels[found], missing, constant_values=NO_LABEL),
            scores=np.pad(scores, missing, constant_values=-np.inf),
        )

    def score(
        self, rows: Int64[np.ndarray, row], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the scores of given labels (see `Source.score`)."""
        model = self._model
        if not len(model.labels):
            return np.full(labels.shape, -np.inf, dtype=np.float32)
        found = np.searchsorted(model.labels, labels)
        found = np.minimum(found, len(model.labels) - 1)
        sums = self._summed()
        scores: Float32[np.ndarray, "row m"] = np.empty(labels.shape, dtype=np.float32)

        def score(part: slice) -> None:
            _scores_of_labels(
                self._features.take(rows[part]), self.weights, self.bias, len(self.bias),
                found[part], labels.shape[1], scores[part],
            )  # fmt: skip

        if sums is not None:
            scores = sums.values[sums.places[rows][:, None], found] + self.bias[found]
        else:
            in_row_parts(score, len(rows), self.num_threads)
        scores[model.labels[found] != labels] = -np.inf
        return scores

    def _summed(self) -> Sums | None:
        """Return the sums of the batch; None: they are too many to be kept.

        Blends ask for the best labels first and then for scores of others, each time of all sums.
        """
        if self.sums is None and self.num_queries * len(self.labels) <= MAX_KEPT:
            self.sums = all_sums(self._model, self._features, self.num_threads)
        return self.sums


def all_sums(model: SparseModel, features: RowsLike, num_threads: int) -> Sums:
    """Return the inner product of each row with every label."""
    sums = np.zeros((len(features.indptr) - 1, len(model.labels)), dtype=np.float32)
    rows = np.arange(len(sums), dtype=np.int64)
    in_row_parts(
        lambda part: sum_up(Rows.part_of(features, part), model.native_weights, rows[part], sums),
        len(rows),
        num_threads,
        -(-len(rows) // num_threads),
    )
    return Sums(sums, rows)


def sum_up(
    features: RowsLike,
    weights: Float32[csr_array, "feature label"] | Csr,
    rows: Int64[np.ndarray, row],
    sums: Float32[np.ndarray, "place label"],
) -> None:
    """Add the inner product of each row with every label to the sums in its place.

    Args:
        features: What to score.
        weights: Weights of every label, by feature.
        rows: Place of each of these rows among the sums.
        sums: 0 in these places.
    """
    _sum_up(features, weights, rows, len(rows), sums, sums.shape[1])
