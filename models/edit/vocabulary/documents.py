"""What the documents that a model remembers tell of labels that were merged or split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from jaxtyping import Int64
from scipy.sparse import csr_array

from models.memory.memory import NeighbourMemory


def with_merged_labels(
    memory: NeighbourMemory, rows_after: Int64[np.ndarray, label]
) -> NeighbourMemory:
    """Return the same documents; each carries what its labels are now, once.

    Args:
        memory: Of the labels before, which are the first ones.
        rows_after: Of every label, new ones too, its row or that of the label it was merged into.
    """
    labels = memory.labels
    indices = rows_after[labels.indices]
    shape = (labels.shape[0], len(rows_after))
    ones = np.ones(len(indices), dtype=np.float32)
    merged = csr_array((ones, indices, labels.indptr.copy()), shape=shape)
    merged.sum_duplicates()
    merged.data[:] = 1
    return replace(memory, labels=merged)


def merged_counts(
    counts: Int64[np.ndarray, label], into: Mapping[int, int], memory: NeighbourMemory | None
) -> Int64[np.ndarray, label]:
    """Return how many training documents carry each label after merges.

    Documents that carry several labels of which one has become count once, as far as they are
    remembered.

    Args:
        counts: Before; 0 of new labels.
        into: By the row of a label, the row of that which it was merged into.
        memory: Before the merges; None: nothing is remembered.
    """
    after = counts.copy()
    for row, other in into.items():
        after[other] += counts[row]
        after[row] = 0
    if memory is None:
        return after
    for other, rows in members_of(into).items():
        carried = csr_array(memory.labels[:, [row for row in rows if row < memory.labels.shape[1]]])
        after[other] -= int(np.maximum(np.diff(carried.indptr) - 1, 0).sum())
    return after


def members_of(into: Mapping[int, int]) -> dict[int, list[int]]:
    """Return, for each label that others were merged into, itself and these, rising."""
    members: dict[int, set[int]] = {}
    for row, other in into.items():
        members.setdefault(other, {other}).add(row)
    return {other: sorted(rows) for other, rows in members.items()}


def documents_with(memory: NeighbourMemory, row: int) -> tuple[str, ...]:
    """Return the ids of the documents that carry a label."""
    documents = csr_array(memory.labels[:, [row]]).nonzero()[0]
    return tuple(memory.ids[document] for document in documents.tolist())
