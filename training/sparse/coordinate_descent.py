"""The sparse model's training: dual coordinate descent on working sets.

The solver is that of Hsieh et al. (2008, "A dual coordinate descent method for large-scale linear
SVM", algorithm 3), with the shrinking and the stopping rule of liblinear. What is around it, the
search for hard negatives and the sample of the rest, is described in
`longtail.training.sparse.svm`. The loops are in `coordinate_descent.c`; all that is random follows
from seed and label, so labels may be fitted on any thread in any order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int32, Int64

from longtail.models.native.library import (
    F32,
    FLOAT,
    GROWN,
    I32,
    I64,
    INT,
    Grown,
    RecordOf,
    function,
    taken,
)


class Rows(NamedTuple):
    """The arrays of a CSR matrix, the squared length of each row, and the number of columns."""

    indptr: Int64[np.ndarray, rows_plus_1]
    indices: Int32[np.ndarray, nonzero]
    data: Float32[np.ndarray, nonzero]
    squares: Float32[np.ndarray, row]
    num_columns: int

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.squares)


class Plan(NamedTuple):
    """What to fit; see `longtail.training.configuration.sections.SparseConfig`.

    Attributes:
        cost: C, what an error costs.
        rare_cost: The same for labels with fewer than 10 documents.
        is_hinge: Whether the loss is the hinge; else its square.
        prune_below: Smaller weights are dropped.
        rounds: How often hard negatives are looked for; 0: every document is taken.
        hard_negatives: Looked for each round.
        hard_negatives_per_positive: Further ones for each positive.
        sampled_negatives: Drawn to stand for the rest.
        postings: Entries of the index that a search may read.
        postings_per_positive: Further ones for each positive.
        seed: Seed of the samples and of the solver's order.
    """

    cost: float
    rare_cost: float
    is_hinge: bool
    prune_below: float
    rounds: int
    hard_negatives: int
    hard_negatives_per_positive: int
    sampled_negatives: int
    postings: int
    postings_per_positive: int
    seed: int


_ROWS = RecordOf(
    "sparse_rows", indptr=I64["num_rows+1"], indices=I32["entry"], data=F32["entry"],
    squares=F32["num_rows"], num_rows=INT, num_columns=INT,
)  # fmt: skip
_PLAN = RecordOf(
    "fit_plan",
    **{x: FLOAT if x in ("cost", "rare_cost", "prune_below") else INT for x in Plan._fields},
)
_fit = function(
    "descent_fit", by_document=_ROWS, by_feature=_ROWS, by_label=_ROWS, labels=I64["num_labels"],
    num_labels=INT, plan=_PLAN, starts=I64.out["num_labels+1"], bias=F32.out["num_labels"],
    results=GROWN,
)  # fmt: skip


def fit_chunk(
    by_document: Rows,
    by_feature: Rows,
    by_label: Rows,
    labels: Int64[np.ndarray, chunk],
    plan: Plan,
) -> tuple[
    Int64[np.ndarray, chunk_plus_1],
    Int32[np.ndarray, nonzero],
    Float32[np.ndarray, nonzero],
    Float32[np.ndarray, chunk],
]:
    """Fit some labels, one after the other.

    Returns:
        Their weights as the arrays of a CSR matrix (indptr, indices, data), and their biases.
    """
    starts = np.zeros(len(labels) + 1, dtype=np.int64)
    bias = np.empty(len(labels), dtype=np.float32)
    found = np.zeros((2, 2), dtype=np.int64)
    documents = (by_document, by_feature, by_label)
    _fit(*documents, labels, len(labels), plan, starts, bias, found)
    indices, values = taken(found, [Grown(np.int32), Grown(np.float32)])
    return starts, indices, values, bias
