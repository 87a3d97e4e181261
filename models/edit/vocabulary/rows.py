"""The weights of labels that were merged: fitted again, or those of one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array, vstack

from longtail.models.edit.vocabulary.documents import members_of
from longtail.models.memory.memory import NeighbourMemory
from longtail.models.scorers.linear import LinearModel
from longtail.models.scorers.sparse import SparseModel

FitRows: TypeAlias = Callable[
    [csr_array, csr_array, Int64[np.ndarray, "_"]], tuple[csr_array, Float32[np.ndarray, "_"]]
]
"""Returns weights [label, feature] and biases of some labels, given the features of documents, the
labels that each carries, and the rows of the labels to fit, rising."""
Weights = Literal["fitted", "kept", "none"]
"""Where the sparse weights of a label come from that others were merged into: fitted to all of
their documents; those of the label that had most of them; or there are none."""


def merged_sparse(
    model: SparseModel,
    into: Mapping[int, int],
    counts: Int64[np.ndarray, label],
    memory: NeighbourMemory | None,
    fit_rows: FitRows | None,
) -> tuple[SparseModel, dict[int, Weights]]:
    """Return a sparse model in which merged labels have one row, and where that comes from.

    Rows of all other labels are the same to the bit.

    Args:
        model: Before the merges.
        into: By the row of a label in the catalogue, the row of that which it was merged into.
        counts: Of training documents before the merges.
        memory: The documents, with what they carry after the merges; None: nothing is remembered.
        fit_rows: Fits rows; None: nothing can.
    """
    known = set(model.labels.tolist())
    taken = _rows_taken(into, known, counts)
    weights: dict[int, Weights] = dict.fromkeys(members_of(into), "none")
    weights |= dict.fromkeys(taken, "kept")
    kept = _with_rows_of(model, into, taken)
    several = [
        other for other, rows in members_of(into).items() if len(known.intersection(rows)) > 1
    ]
    if memory is None or fit_rows is None or not several:
        return kept, weights
    labels = np.array(sorted(several), dtype=np.int64)
    fitted, bias = fit_rows(memory.documents, memory.labels, labels)
    weights |= dict.fromkeys(several, "fitted")
    return _with_fitted(kept, labels, fitted, bias), weights


def merged_linear(
    model: LinearModel,
    into: Mapping[int, int],
    counts: Int64[np.ndarray, label],
    num_labels: int | None = None,
) -> LinearModel:
    """Return dense rows in which merged labels have that of the one with most documents.

    Args:
        model: Before the merges.
        into: As for `merged_sparse`.
        counts: Likewise.
        num_labels: Labels from this number on can have no row; None: all can.
    """
    taken = _rows_taken(into, set(model.labels.tolist()), counts)
    labels, rows = _order(model.labels, into, taken)
    is_possible = labels < (len(counts) if num_labels is None else num_labels)
    rows = rows[is_possible]
    return LinearModel(model.weight[rows], model.bias[rows], labels[is_possible])


def _rows_taken(
    into: Mapping[int, int], known: set[int], counts: Int64[np.ndarray, label]
) -> dict[int, int]:
    """Return the label whose row a label gets that others were merged into, where one has a row."""
    taken = {}
    for other, rows in members_of(into).items():
        candidates = [row for row in rows if row in known]
        if candidates:
            taken[other] = max(candidates, key=lambda row: (counts[row], row == other, -row))
    return taken


def _order(
    labels: Int64[np.ndarray, covered], into: Mapping[int, int], taken: Mapping[int, int]
) -> tuple[Int64[np.ndarray, kept], Int64[np.ndarray, kept]]:
    """Return the labels that have a row after merges, rising, and the old row of each."""
    row_of = {label: row for row, label in enumerate(labels.tolist())}
    gone = into.keys() | taken.keys()
    rows = {label: row for label, row in row_of.items() if label not in gone}
    rows |= {other: row_of[label] for other, label in taken.items()}
    order = sorted(rows)
    return (
        np.array(order, dtype=np.int64),
        np.array([rows[label] for label in order], dtype=np.int64),
    )


def _with_rows_of(
    model: SparseModel, into: Mapping[int, int], taken: Mapping[int, int]
) -> SparseModel:
    labels, rows = _order(model.labels, into, taken)
    return replace(
        model, weights=csr_array(model.weights[rows]), bias=model.bias[rows], labels=labels
    )


def _with_fitted(
    model: SparseModel,
    labels: Int64[np.ndarray, fitted],
    weights: Float32[csr_array, "fitted feature"],
    bias: Float32[np.ndarray, fitted],
) -> SparseModel:
    """Return the model with other rows for labels that have one."""
    at = np.searchsorted(model.labels, labels)
    rows = np.arange(len(model.labels), dtype=np.int64)
    rows[at] = len(model.labels) + np.arange(len(labels))
    all_weights = csr_array(vstack([model.weights, weights], format="csr"))
    return replace(
        model,
        weights=csr_array(all_weights[rows]),
        bias=np.concatenate([model.bias, bias])[rows],
    )
