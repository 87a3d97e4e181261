"""Boosted decision trees as arrays, and the walk through them: a call of `boosted_trees.c`."""

from __future__ import annotations

from ctypes import Structure
from dataclasses import dataclass, fields
from functools import cached_property
from types import SimpleNamespace

import numpy as np
from jaxtyping import Float32, Float64, Int64

from longtail.models.native.library import F32, F64, I64, INT, ArrayOf, RecordOf, function

LEAF = -1
"""Stands for the feature of a node that has none below."""
_MAX_TREES, _MAX_DEPTH = 2000, 64
"""What is stored may ask for no more steps than this for each row."""
_NODE = np.dtype([("threshold", np.float32), ("feature", np.int32), ("ways", np.int32, 2)])
_as_record = RecordOf(
    "trees", nodes=ArrayOf(_NODE)["node"], values=F64["node"], roots=I64["num_trees"],
    depths=I64["num_trees"], num_trees=INT,
)  # fmt: skip
_add_leaves = function(
    "boosted_trees_add", trees=_as_record, rows=F32["num_rows width"], num_rows=INT, width=INT,
    totals=F64.out["num_rows"],
)  # fmt: skip


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
        _add_leaves(self._record, np.ascontiguousarray(rows), *rows.shape, totals)
        found: Float32[np.ndarray, row] = totals.astype(np.float32)
        return found

    @cached_property
    def _ways(self) -> Int64[np.ndarray, "node 2"]:
        """Where rows go from each node, left and right; from a leaf back to it."""
        own = np.arange(len(self.features))[:, None]
        is_leaf = (self.features == LEAF)[:, None]
        found: Int64[np.ndarray, "node 2"] = np.where(
            is_leaf, own, np.column_stack([self.lefts, self.rights])
        )
        return found

    @cached_property
    def _depths(self) -> Int64[np.ndarray, tree]:
        """Steps from the root of each tree to its lowest leaf."""
        heights = np.zeros(len(self.features), dtype=np.int64)
        for node in np.flatnonzero(self.features != LEAF)[::-1]:  # what is below it is behind it
            heights[node] = 1 + heights[self._ways[node]].max()
        found: Int64[np.ndarray, tree] = heights[self.roots]
        return found

    @cached_property
    def _record(self) -> Structure:
        """The trees as `boosted_trees.c` reads them.

        Thresholds are rounded down to float32, so that the same numbers of float32 exceed them.
        """
        nodes = np.empty(len(self.features), dtype=_NODE)
        nodes["feature"] = np.where(self.features == LEAF, 0, self.features)
        nodes["ways"] = self._ways
        with np.errstate(over="ignore"):
            nearest = self.thresholds.astype(np.float32)
        below = np.nextafter(nearest, np.float32(-np.inf))
        nodes["threshold"] = np.where(nearest > self.thresholds, below, nearest)
        return _as_record(
            SimpleNamespace(
                nodes=nodes, values=self.values, roots=self.roots, depths=self._depths,
                num_trees=len(self.roots),
            )
        )  # fmt: skip

    def check(self, num_features: int) -> None:
        """Refuse nodes that lead nowhere, or in circles."""
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
            and num_nodes < 2**31
        )
        for below in (self.lefts, self.rights):
            is_good = is_good and bool(
                ((below[inner] > numbers[inner]) & (below[inner] < num_nodes)).all()
            )
        if not is_good:
            raise ValueError(f"boosted trees: a node of the {num_nodes} leads nowhere")
        num_trees, depth = len(self.roots), int(self._depths.max(initial=0))
        if num_trees > _MAX_TREES or depth > _MAX_DEPTH:
            raise ValueError(
                f"boosted trees: {num_trees} trees of depth {depth} at most, expected at most "
                f"{_MAX_TREES} of depth {_MAX_DEPTH}"
            )
