"""What the relations of broader and narrower concepts amount to: levels, tops and circles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from longtail.models.vocabulary.concept import Concept


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """The shape of a vocabulary.

    Attributes:
        num_levels: Of the longest of all shortest ways down from a concept without a broader one;
            1 where there are no relations, 0 where all are in circles.
        num_top: Concepts that have narrower ones and no broader one.
        num_alone: Concepts that have neither.
        cycles: The concepts of each circle of broader concepts, as ids.
    """

    num_levels: int
    num_top: int
    num_alone: int
    cycles: tuple[tuple[str, ...], ...]


def hierarchy_of(concepts: Sequence[Concept]) -> Hierarchy:
    """Return the shape of a vocabulary.

    Args:
        concepts: All of it: relations lead to one of them.
    """
    rows = {concept.id: row for row, concept in enumerate(concepts)}
    tops = [concept for concept in concepts if set(concept.broader) <= {concept.id}]
    num_alone = sum(set(concept.narrower) <= {concept.id} for concept in tops)
    return Hierarchy(
        num_levels=_num_levels(concepts, rows, [rows[concept.id] for concept in tops]),
        num_top=len(tops) - num_alone,
        num_alone=num_alone,
        cycles=_cycles(concepts, rows),
    )


def _num_levels(concepts: Sequence[Concept], rows: dict[str, int], level: list[int]) -> int:
    """Return the number of levels below and with a first one: breadth first, each concept once."""
    seen = bytearray(len(concepts))
    num_levels = 0
    while level:
        num_levels += 1
        for row in level:
            seen[row] = True
        below = {rows[narrower] for row in level for narrower in concepts[row].narrower}
        level = [row for row in below if not seen[row]]
    return num_levels


def _cycles(concepts: Sequence[Concept], rows: dict[str, int]) -> tuple[tuple[str, ...], ...]:
    """Return the strongly connected components of more than one concept, and loops."""
    edges = [
        (row, rows[broader]) for row, concept in enumerate(concepts) for broader in concept.broader
    ]
    if not edges:
        return ()
    ends = np.array(edges, dtype=np.int64)
    graph = coo_array(
        (np.ones(len(ends), dtype=np.int8), (ends[:, 0], ends[:, 1])),
        shape=(len(concepts), len(concepts)),
    )
    _, component = connected_components(graph, directed=True, connection="strong")
    is_in_cycle = np.bincount(component)[component] > 1
    is_in_cycle[ends[ends[:, 0] == ends[:, 1], 0]] = True
    found: dict[int, list[str]] = {}
    for row in np.flatnonzero(is_in_cycle).tolist():
        found.setdefault(int(component[row]), []).append(concepts[row].id)
    return tuple(sorted(map(tuple, found.values())))
