"""Boosted decision trees as arrays, and the compiled walk through them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int64, UInt64

from longtail.models.jit import compiled

LEAF = -1
"""Stands for the feature of a node that has none below."""
_MAX_TREES, _MAX_DEPTH = 2000, 64
"""What is stored may ask for no more steps than this for each row."""


class _Steps(NamedTuple):
    """Trees for a walk of as many steps for every row, so that no processor has to guess a branch.

    Both ways from a leaf lead back to it. Of a node, `ways` has two entries, left and right.
    Numbers are unsigned, as an index that can't be negative needs no look.
    """

    roots: UInt64[np.ndarray, tree]
    depths: UInt64[np.ndarray, tree]
    features: UInt64[np.ndarray, node]
    thresholds: Float64[np.ndarray, node]
    ways: UInt64[np.ndarray, "2*node"]
    values: Float64[np.ndarray, node]


@dataclass(frozen=True)
class BoostedTrees:
    """A sum of decision trees: the log-odds of two classes, as gradient boosting fits them.

    Attributes:
        roots: The first node of each tree.
        features: The feature that each node looks at; `LEAF` at a leaf.
        thresholds: Rows whose feature is at most this go left.
        lefts: The node that they go to; behind the node itself.
        rights: Where others go; behind the node itself.
        values: What a leaf adds, in nats.
        baseline: Log-odds without any tree; one number.
    """

    roots: Int64[np.ndarray, tree]
    features: Int64[np.ndarray, node]
    thresholds: Float64[np.ndarray, node]
    lefts: Int64[np.ndarray, node]
    rights: Int64[np.ndarray, node]
    values: Float64[np.ndarray, node]
    baseline: Float64[np.ndarray, 1]

    def log_odds(self, rows: Float32[np.ndarray, "row feature"]) -> Float32[np.ndarray, row]:
        """Return the log-odds of rows: the baseline and each tree's leaf, summed in their order."""
        totals = np.full(len(rows), self.baseline[0])
        _add_leaves(np.ascontiguousarray(rows), self._steps, totals)
        found: Float32[np.ndarray, row] = totals.astype(np.float32)
        return found

    @cached_property
    def _steps(self) -> _Steps:
        is_leaf = self.features == LEAF
        own = np.arange(len(self.features))
        lefts = np.where(is_leaf, own, self.lefts)
        rights = np.where(is_leaf, own, self.rights)
        heights = np.zeros(len(own), dtype=np.int64)
        for node in own[::-1]:  # what is below a node is behind it
            if not is_leaf[node]:
                heights[node] = 1 + max(heights[lefts[node]], heights[rights[node]])
        return _Steps(
            roots=self.roots.astype(np.uint64),
            depths=heights[self.roots].astype(np.uint64),
            features=np.where(is_leaf, 0, self.features).astype(np.uint64),
            thresholds=self.thresholds,
            ways=np.column_stack([lefts, rights]).ravel().astype(np.uint64),
            values=self.values,
        )

    def check(self, num_features: int) -> None:
        """Refuse nodes that lead nowhere, or in circles.

        Raises:
            ValueError: There are some.
        """
        num_nodes = len(self.features)
        if any(len(getattr(self, each.name)) != num_nodes for each in fields(self)[1:6]):
            raise ValueError("boosted trees: arrays of different lengths")
        inner = np.flatnonzero(self.features != LEAF)
        numbers = np.arange(num_nodes)
        is_good = (
            ((self.features >= LEAF) & (self.features < num_features)).all()
            and ((self.roots >= 0) & (self.roots < num_nodes)).all()
            and np.isfinite(self.values).all()
            and np.isfinite(self.baseline).all()
            and self.baseline.shape == (1,)
            and not np.isnan(self.thresholds).any()
        )
        for below in (self.lefts, self.rights):
            is_good = is_good and bool(
                ((below[inner] > numbers[inner]) & (below[inner] < num_nodes)).all()
            )
        if not is_good:
            raise ValueError(f"boosted trees: a node of the {num_nodes} leads nowhere")
        num_trees, depth = len(self.roots), int(self._steps.depths.max(initial=0))
        if num_trees > _MAX_TREES or depth > _MAX_DEPTH:
            raise ValueError(
                f"boosted trees: {num_trees} trees of depth {depth} at most, expected at most "
                f"{_MAX_TREES} of depth {_MAX_DEPTH}"
            )


@compiled
def _add_leaves(rows, steps, totals):
    """Add the value of each tree's leaf to the total of each row, one tree after the other.

    Four rows walk at a time: a step has to wait for the one before, but not for another row's.
    """
    num_fours = len(rows) // 4
    for tree in range(len(steps.roots)):
        root, depth = steps.roots[tree], steps.depths[tree]
        for four in range(num_fours):
            at = 4 * four
            one, two, three, last = rows[at], rows[at + 1], rows[at + 2], rows[at + 3]
            a = b = c = d = root
            for _ in range(depth):
                a = _below(a, one, steps)
                b = _below(b, two, steps)
                c = _below(c, three, steps)
                d = _below(d, last, steps)
            totals[at] += steps.values[a]
            totals[at + 1] += steps.values[b]
            totals[at + 2] += steps.values[c]
            totals[at + 3] += steps.values[d]
        for at in range(4 * num_fours, len(rows)):
            node = root
            for _ in range(depth):
                node = _below(node, rows[at], steps)
            totals[at] += steps.values[node]


@compiled
def _below(node, row, steps):
    goes_right = np.uint64(row[steps.features[node]] > steps.thresholds[node])
    return steps.ways[np.uint64(2) * node + goes_right]
