"""What the documents that a model remembers tell of labels that were merged or split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.models.memory.memory import NeighbourMemory


def with_merged_labels(
    memory: NeighbourMemory, rows_after: Int64[np.ndarray, label]
) -> NeighbourMemory:
    """Return the same documents; each carries what its labels are now, once.

    Args:
        memory: Of the labels before, which are the first ones.
        rows_after: Of every label, new ones too, its row or that of the label it was merged into.
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
    memory: NeighbourMemory, rows_after: Int64[np.ndarray, label]
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
