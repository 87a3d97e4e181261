"""log p_n of all labels by float32, level by level, with a bound of the error.

For proposals alone: one product scores all nodes, and doubling the level's log-probabilities is the
sum along all paths. The bound is absolute, in nats; longtail.models.ranking.certified decides.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float32, Float64
from torch import Tensor
from torch.nn.functional import logsigmoid

from longtail.models.label_tree.tree import LabelTree
from longtail.models.ranking.certified import product_error

MAX_LEAVES = {"cpu": 2**18, "cuda": 2**25}
"""Log-probabilities of leaves that are computed at a time; some six times as many float32 numbers
are held: 6 MiB, so that they stay in the processor's caches, or 800 MiB of a GPU."""
_ONE_SIDED = 1e4
"""Score of a node with padding on one side: the sigmoid of as little is 0 in float32. An infinite
one, as the tree has it, would give inf - inf."""


class NearLogProbs:
    """A tree's weights and biases for float32, on the tree's device."""

    def __init__(self, tree: LabelTree) -> None:
        """Copy the nodes; those with padding on one side get a finite score of their own."""
        forced = tree.biases.isinf()
        self._depth = tree.depth
        self._weights = tree.weights.masked_fill(forced[:, None], 0.0)
        self._biases = tree.biases.clamp(-_ONE_SIDED, _ONE_SIDED)
        scales = (
            self._weights.double().norm(dim=1),
            self._biases.double().masked_fill(forced, 0).abs(),
        )
        self._longest_weights, self._largest_biases = map(self._largest_sum, scales)

    def of(self, features: Float32[Tensor, "document k"]) -> Float32[Tensor, "document leaf"]:
        """Return log p_n of each leaf, from left to right, in nats, within `bounds`."""
        scores = torch.addmm(self._biases, features, self._weights.T)  # (document, node)
        right = logsigmoid(scores)
        left = right - scores  # log sigma(-s) = log sigma(s) - s
        reach = features.new_zeros((len(features), 1))
        for level in range(self._depth):
            nodes = slice(2**level - 1, 2 ** (level + 1) - 1)
            below = features.new_empty((len(features), 2 ** (level + 1)))
            torch.add(reach, left[:, nodes], out=below[:, ::2])
            torch.add(reach, right[:, nodes], out=below[:, 1::2])
            reach = below
        return reach

    def bounds(
        self, features: Float32[Tensor, "document k"]
    ) -> tuple[Float64[Tensor, document], Float64[Tensor, document]]:
        """Return what |log p_n| of no label exceeds, and how far `of` may be from the exact one.

        In nats, for each document. At a node, with the unit u = 2^-24: the score s = w·x + b is off
        by at most gamma (|w||x| + |b|) (Higham 2002, 3.1), and log sigma, whose slope is at most 1,
        by as much. Its own rounding, and that of left = right - s, is below 4u |s| + 8u, where
        PyTorch's exp and log1p are off by two units in the last place. Each of `depth` sums is off
        by u times the total, which is at most the sum of |s| + log 2 over the path. The sums of |w|
        and |b| over all paths are bounded by their largest, found once.
        """
        unit = 2.0**-24
        terms = features.shape[1] + 2
        gamma = terms * unit / (1 - terms * unit) + product_error()
        sizes = features.double().norm(dim=1) * self._longest_weights + self._largest_biases
        totals = sizes + self._depth * math.log(2)
        margins = sizes * (gamma + 4 * unit) + (8 + totals) * (unit * self._depth)
        return totals, torch.where(sizes < 2.0**127, margins, torch.inf)  # else one may overflow

    def _largest_sum(self, of_nodes: Float64[Tensor, node]) -> float:
        """Return the largest sum of a node's number over the paths to the leaves."""
        sums = of_nodes.new_zeros(1)
        for level in range(self._depth):
            sums = (sums + of_nodes[2**level - 1 : 2 ** (level + 1) - 1]).repeat_interleave(2)
        return float(sums.max())
