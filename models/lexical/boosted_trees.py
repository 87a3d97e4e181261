"""Boosted decision trees as arrays, and the compiled walk through them."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float32, Float64, Int64

from models.jit import compiled

LEAF = -1
"""Stands for the feature of a node that has none below."""


@dataclass(frozen=True, slots=True)
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
        found = np.empty(len(rows), dtype=np.float32)
        arrays = (self.features, self.thresholds, self.lefts, self.rights, self.values)
        _log_odds(np.ascontiguousarray(rows), self.roots, arrays, self.baseline[0], found)
        return found

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


@compiled
def _log_odds(rows, roots, trees, baseline, found):
    features, thresholds, lefts, rights, values = trees
    for row in range(len(rows)):
        total = baseline
        for root in roots:
            node = root
            while features[node] >= 0:
                is_left = rows[row, features[node]] <= thresholds[node]
                node = lefts[node] if is_left else rights[node]
            total += values[node]
        found[row] = total
