"""Newton ascent on the decisions of many tree nodes at once (Bamler & Mandt 2020, Eq. 8).

The rows of a node are cut into chunks of equal length, so that scores, gradients and Hessians of
all nodes are batched products of small matrices, and sums of chunks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Float32, Float64, Int64
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.label_tree.cpu_kernel import LEAST_STEP, MOST_STEPS, STALE
from training.label_tree.newton_kernels import ROUNDING

_SHORTEST_CHUNK, _LONGEST_CHUNK = 16, 256  # rows


@dataclass(frozen=True, slots=True)
class Segments:
    """Rows of nodes in chunks of equal length, the last chunk of each node filled with zeros.

    Attributes:
        features: x of each row, with a 1 behind it for the bias.
        totals: Weight of each row.
        nodes: The node of each chunk, never falling.
        num_nodes: Number of nodes; some may have no chunk.
    """

    features: Float32[Tensor, "chunk row feature"]
    totals: Float32[Tensor, "chunk row"]
    nodes: Int64[Tensor, chunk]
    num_nodes: int

    def only(self, chunks: Bool[Tensor, chunk]) -> Segments:
        """Return the segments without the other chunks."""
        return Segments(
            self.features[chunks], self.totals[chunks], self.nodes[chunks], self.num_nodes
        )

    def sums(self, values: Float[Tensor, chunk * rest]) -> Float[Tensor, node * rest]:
        """Return the sums of the chunks' values over each node, always in the same order."""
        lengths = torch.bincount(self.nodes, minlength=self.num_nodes)
        return sums_of_runs(values, lengths)

    def gram(self, row_weights: Float32[Tensor, "chunk row"]) -> Float64[Tensor, "node f f"]:
        """Return the weighted sums of the rows' outer products over each node."""
        weighted = self.features * row_weights.unsqueeze(2)
        return self.sums(torch.bmm(self.features.transpose(1, 2), weighted)).double()


def sums_of_runs(
    values: Float[Tensor, item * rest], lengths: Int64[Tensor, run]
) -> Float[Tensor, run * rest]:
    """Return the sums of runs of items that follow each other; a run may be empty."""
    if not len(values):  # which segment_reduce refuses
        return values.new_zeros((len(lengths), *values.shape[1:]))
    return torch.segment_reduce(values, "sum", lengths=lengths, axis=0)


def cut_into_chunks(
    row_nodes: Int64[Tensor, row], num_nodes: int
) -> tuple[Int64[Tensor, row], Int64[Tensor, chunk], int]:
    """Return the slot of each row, the node of each chunk, and the slots a chunk.

    Args:
        row_nodes: The node of each row, never falling.
        num_nodes: Number of nodes.
    """
    rows = torch.bincount(row_nodes, minlength=num_nodes)
    mean = max(1, len(row_nodes) // max(1, num_nodes))
    length = min(max(_SHORTEST_CHUNK, 1 << (mean - 1).bit_length()), _LONGEST_CHUNK)
    chunks = (rows + length - 1) // length
    first_row = rows.cumsum(0) - rows
    first_slot = (chunks.cumsum(0) - chunks) * length
    slots = torch.arange(len(row_nodes), device=rows.device)
    slots += (first_slot - first_row)[row_nodes]
    return slots, torch.arange(num_nodes, device=rows.device).repeat_interleave(chunks), length


def segments_of(
    features: Float32[Tensor, "row feature"],
    totals: Float32[Tensor, row],
    row_nodes: Int64[Tensor, row],
    num_nodes: int,
) -> tuple[Segments, Int64[Tensor, row]]:
    """Return rows as segments, and the slot that each row has in the flattened chunks."""
    slots, nodes, length = cut_into_chunks(row_nodes, num_nodes)
    num_slots = len(nodes) * length
    padded = features.new_zeros((num_slots, features.shape[1])).index_copy_(0, slots, features)
    weights = totals.new_zeros(num_slots).index_copy_(0, slots, totals)
    shape = (len(nodes), length)
    return Segments(
        padded.view(*shape, features.shape[1]), weights.view(shape), nodes, num_nodes
    ), slots


@dataclass(frozen=True, slots=True)
class _Point:
    """The objective of each node at some weights, its gradient, and the weights of its Hessian."""

    values: Float64[Tensor, node]
    gradients: Float64[Tensor, "node feature"]
    curvatures: Float32[Tensor, "chunk row"]


@dataclass(slots=True)
class _Climb:
    """One ascent under way.

    Attributes:
        live: Nodes not yet within their tolerance.
        segments: The rows of these at least.
        right: As in `NodeAscent.ascend`.
        point: Where each node is.
        gains: Twice what the last step of each node promised; 0 asks for a new Hessian.
        is_fresh: Whether a node's Hessian was computed where it is.
        steps: Length of the next step as a share of the full one.
    """

    live: Int64[Tensor, live]
    segments: Segments
    right: Float32[Tensor, "chunk row"]
    point: _Point
    gains: Float64[Tensor, node]
    is_fresh: Bool[Tensor, node]
    steps: Float64[Tensor, node]

    def drop_idle_chunks(self) -> None:
        """Leave out the rows of nodes that are done, when they are more than half of all."""
        is_live = torch.zeros_like(self.is_fresh).index_fill_(0, self.live, value=True)
        chunks = is_live[self.segments.nodes]
        if 2 * int(chunks.sum()) < len(chunks):
            self.segments = self.segments.only(chunks)
            self.right = self.right[chunks]
            self.point = replace(self.point, curvatures=self.point.curvatures[chunks])

    def move(self, moved: Bool[Tensor, node], point: _Point) -> None:
        """Go on from another point at these nodes."""
        chunks = moved[self.segments.nodes].unsqueeze(1)
        self.point = _Point(
            values=torch.where(moved, point.values, self.point.values),
            gradients=torch.where(moved.unsqueeze(1), point.gradients, self.point.gradients),
            curvatures=torch.where(chunks, point.curvatures, self.point.curvatures),
        )


class NodeAscent:
    """Maximises Eq. 8 minus lambda (|w|^2 + b^2) at each node, for one split after another.

    A node keeps its Hessian as long as steps with it gain enough, from one split to the next too.
    A step that loses is tried again with a new Hessian, then shorter; so no objective falls.

    Attributes:
        weights: w of each node, and b in the last column.
    """

    def __init__(self, segments: Segments, regulariser: float) -> None:
        """Start from zero weights.

        Args:
            segments: The rows of the nodes.
            regulariser: lambda, above zero.
        """
        self._segments = segments
        self._regulariser = regulariser
        num_nodes, num_features = segments.num_nodes, segments.features.shape[2]
        self.weights = segments.features.new_zeros((num_nodes, num_features), dtype=torch.float64)
        identity = torch.eye(num_features, dtype=torch.float64, device=self.weights.device)
        self._factors = identity.repeat(num_nodes, 1, 1)
        self._has_factor = self.weights.new_zeros(num_nodes, dtype=torch.bool)

    def log_likelihoods(self, right: Float32[Tensor, "chunk row"]) -> Float64[Tensor, node]:
        """Return Eq. 8 at each node, in nats, without the regulariser."""
        values = self._evaluate(self._segments, right, self.weights).values
        return values + self._regulariser * self.weights.square().sum(1)

    def ascend(
        self,
        right: Float32[Tensor, "chunk row"],
        is_open: Bool[Tensor, node],
        tolerances: Float64[Tensor, node],
    ) -> None:
        """Move the weights of the open nodes to within a tolerance of their maximum.

        Args:
            right: The part of each row's weight whose labels are on the right.
            is_open: Nodes to move; the others stay as they are.
            tolerances: What may be left to gain at each node, in nats.
        """
        climb = _Climb(
            live=is_open.nonzero().squeeze(1),
            segments=self._segments,
            right=right,
            point=self._evaluate(self._segments, right, self.weights),
            gains=torch.where(self._has_factor, torch.inf, 0.0).double(),
            is_fresh=torch.zeros_like(is_open),
            steps=torch.ones_like(tolerances),
        )
        for _ in range(MOST_STEPS):
            directions, gains = self._aim(climb)
            is_going = (gains > 2 * tolerances[climb.live]) & (climb.steps[climb.live] > LEAST_STEP)
            climb.live = climb.live[is_going]
            if not len(climb.live):
                return
            climb.drop_idle_chunks()
            self._step(climb, directions[is_going], gains[is_going])

    def _aim(self, climb: _Climb) -> tuple[Float64[Tensor, "live f"], Float64[Tensor, live]]:
        """Return Newton directions, and about twice what each promises to gain."""
        directions, gains = self._newton(climb)
        wants_new = (gains > STALE * climb.gains[climb.live]) & ~climb.is_fresh[climb.live]
        if not bool(wants_new.any()):
            return directions, gains
        self._factorise(climb, climb.live[wants_new])
        return self._newton(climb)

    def _newton(self, climb: _Climb) -> tuple[Float64[Tensor, "live f"], Float64[Tensor, live]]:
        gradients = climb.point.gradients[climb.live]
        directions = torch.cholesky_solve(gradients.unsqueeze(2), self._factors[climb.live])
        return directions.squeeze(2), (gradients * directions.squeeze(2)).sum(1)

    def _factorise(self, climb: _Climb, nodes: Int64[Tensor, stale]) -> None:
        """Compute the Hessians of these nodes at their weights, and their Cholesky factors."""
        is_stale = torch.zeros_like(climb.is_fresh).index_fill_(0, nodes, value=True)
        chunks = is_stale[climb.segments.nodes]
        hessians = climb.segments.only(chunks).gram(climb.point.curvatures[chunks])[nodes]
        # Rounding must not make them indefinite: it only makes steps a little shorter.
        hessians.diagonal(dim1=1, dim2=2).mul_(1 + ROUNDING).add_(2 * self._regulariser)
        self._factors[nodes] = torch.linalg.cholesky_ex(hessians)[0]
        climb.is_fresh |= is_stale
        self._has_factor |= is_stale

    def _step(
        self, climb: _Climb, directions: Float64[Tensor, "live f"], gains: Float64[Tensor, live]
    ) -> None:
        """Take a step at each live node; take it back where the objective falls."""
        live, steps = climb.live, climb.steps[climb.live]
        reached = self.weights.index_add(0, live, directions * steps.unsqueeze(1))
        point = self._evaluate(climb.segments, climb.right, reached)
        slack = ROUNDING * climb.point.values[live].abs()
        is_better = point.values[live] >= climb.point.values[live] - slack
        # After a loss with a fresh Hessian the same one serves again, for a shorter step.
        shorter = torch.where(climb.is_fresh[live], steps / 4, steps)
        climb.steps[live] = torch.where(is_better, 1.0, shorter)
        climb.gains[live] = gains
        moved = torch.zeros_like(climb.is_fresh).index_fill_(0, live[is_better], value=True)
        climb.is_fresh &= ~moved
        self.weights = torch.where(moved.unsqueeze(1), reached, self.weights)
        climb.move(moved, point)

    def _evaluate(
        self,
        segments: Segments,
        right: Float32[Tensor, "chunk row"],
        weights: Float64[Tensor, "node f"],
    ) -> _Point:
        of_chunks = weights.float()[segments.nodes].unsqueeze(2)  # (chunk, f, 1)
        scores = torch.bmm(segments.features, of_chunks).squeeze(2)
        probabilities = scores.sigmoid()
        # right log sigma(s) + (total - right) log sigma(-s), with one logarithm
        values = (right * scores + segments.totals * logsigmoid(-scores)).sum(1)
        expected = segments.totals * probabilities
        gradients = torch.bmm((right - expected).unsqueeze(1), segments.features).squeeze(1)
        penalty = self._regulariser * weights.square().sum(1)
        return _Point(
            values=segments.sums(values.double()) - penalty,
            gradients=segments.sums(gradients.double()) - 2 * self._regulariser * weights,
            curvatures=expected * (1 - probabilities),
        )
