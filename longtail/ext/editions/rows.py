"""The weights of labels that were merged: fitted again, or those of one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.ext.editions.labels import ChangedLabels
from longtail.models.labels.catalogue import LabelCatalogue, named_label
from longtail.models.lexical.matcher import FindHistory
from longtail.models.lexical.name_model import NameModel
from longtail.models.matrices import transposed
from longtail.models.memory.memory import NeighbourMemory
from longtail.models.memory.vectors import VectorMemory
from longtail.models.scorers.sparse import SparseModel

if TYPE_CHECKING:  # brings PyTorch
    from longtail.models.scorers.linear import LinearModel

Memory = TypeVar("Memory", NeighbourMemory, VectorMemory)
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
        counts: Counts of training documents before the merges.
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
    fitted, bias = fit_rows(memory.documents.to_csr(), memory.labels, labels)
    weights |= dict.fromkeys(several, "fitted")
    return kept.with_columns(labels, transposed(fitted), bias), weights


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
    return replace(
        model, weight=model.weight[rows], bias=model.bias[rows], labels=labels[is_possible]
    )


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
    return SparseModel.of_rows(
        model.tfidf, csr_array(model.weights[rows]), model.bias[rows], labels
    )


def with_merged_labels(memory: Memory, rows_after: Int64[np.ndarray, label]) -> Memory:
    """Return the same documents; each carries what its labels are now, once.

    Args:
        memory: Memory of the labels before, which are the first ones.
        rows_after: For every label, new ones too, its row or that of the label it was merged into.
    """
    labels = _times_carried(memory, rows_after)
    labels.data[:] = 1
    return replace(memory, labels=labels)


def merged_counts(
    counts: Int64[np.ndarray, label],
    rows_after: Int64[np.ndarray, label],
    memory: NeighbourMemory | None,
) -> Int64[np.ndarray, label]:
    """Return how many training documents carry each label after merges.

    Documents that carry several labels of which one has become count once, as far as they are
    remembered.

    Args:
        counts: Before; 0 of new labels.
        rows_after: As for `with_merged_labels`.
        memory: Before the merges; None: nothing is remembered.
    """
    after = np.zeros_like(counts)
    np.add.at(after, rows_after, counts)
    if memory is not None:
        labels = _times_carried(memory, rows_after)
        np.subtract.at(after, labels.indices, labels.data.astype(np.int64) - 1)
    return after


def _times_carried(
    memory: NeighbourMemory | VectorMemory, rows_after: Int64[np.ndarray, label]
) -> Float32[csr_array, "document label"]:
    """Return how many of the labels that one has become each document carried."""
    labels = memory.labels
    ones = np.ones(labels.nnz, dtype=np.float32)
    entries = (ones, rows_after[labels.indices], labels.indptr.copy())
    merged = csr_array(entries, shape=(labels.shape[0], len(rows_after)))
    merged.sum_duplicates()
    return merged


def members_of(into: Mapping[int, int]) -> dict[int, list[int]]:
    """Return, for each label that others were merged into, itself and these, rising."""
    members: dict[int, set[int]] = {}
    for row, other in into.items():
        members.setdefault(other, {other}).add(row)
    return {other: sorted(rows) for other, rows in members.items()}


def documents_of_labels(memory: NeighbourMemory, rows: Sequence[int]) -> list[tuple[str, ...]]:
    """Return the ids of the documents that carry each of some labels of the catalogue."""
    by_label = csr_array(memory.labels.T)
    return [
        tuple(
            memory.ids[document]
            for document in by_label.indices[by_label.indptr[row] : by_label.indptr[row + 1]]
        )
        for row in rows
    ]


def changed_names(model: NameModel, changed: ChangedLabels) -> NameModel | None:
    """Return the same classifier for the labels as they are named now; None where nothing changed.

    Names of labels out of use are found no more. How often a name was right stays with the label;
    of a label that was merged into one that has its name now, it goes over to that.

    Args:
        model: Model of the labels before.
        changed: They, after changes.
    """
    if not changed.parents:
        return None
    labels = [*model.catalogue, *changed.labels[changed.num_before :]]
    for row, parents in changed.parents.items():
        others = changed.full_names.get(row, labels[row].alternative_names)
        now = replace(changed.labels[row], alternative_names=others, parents=parents)
        labels[row] = named_label(now)
    num_new = len(labels) - len(model.catalogue)
    none = np.zeros((num_new, model.history.found.shape[1]), dtype=np.int64)
    history = FindHistory(
        np.concatenate([model.history.found, none]), np.concatenate([model.history.right, none])
    )
    for row, other in changed.into.items():
        if labels[row].name in {labels[other].name, *labels[other].alternative_names}:
            for finds in (history.found, history.right):
                finds[other] += finds[row]
                finds[row] = 0
    return model.with_catalogue(LabelCatalogue(labels), history, changed.parents)
