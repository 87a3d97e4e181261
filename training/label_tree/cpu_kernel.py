"""Compiled fit of the label tree's nodes on a CPU, one node after another.

The alternation that `longtail.training.label_tree.splits.split_nodes` describes, and the ascent
within it. A node's rows lie in tiles of 64 that are read feature by feature, so that scores, losses
and gradients are computed for many rows in one instruction.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, Shaped

from longtail.models.jit import compiled
from longtail.training.label_tree.newton_kernels import (
    _F,
    _FEW_TILES,
    _TILE,
    ROUNDING,
    Tiles,
    evaluate,
    factorise,
    solve,
)

LOOSE, TIGHT = 1e-2, 1e-6  # nats a pair left to gain: before labels are split anew, at the end
STALE = 0.1  # a step that leaves more than this share of the gain asks for a new Hessian
LEAST_STEP = 2.0**-10  # of a full Newton step; no shorter one is tried
MAX_STEPS = 200  # an ascent; where float32 can't tell any more whether there is something to gain

_FEW, _HARDLY_ANY = 1 / 128, 1 / 1024  # of the labels of a node that change sides


class NodeArrays(NamedTuple):
    """Some nodes of a level and what comes to them, as `training.label_tree.splits.NodeBlock`.

    Attributes:
        features: x of every document, with a 1 behind it.
        row_starts: The first row of each node, and the number of rows.
        row_documents: The document of each row.
        pair_starts: The first pair of each row, and the number of pairs.
        pair_labels: The label of each pair, as an index into `label_sums`.
        pair_weights: Its weight.
        label_starts: The first label of each node, and the number of labels.
        label_sums: The weighted sum, over each label's documents, of x with a 1 behind it.
    """

    features: Float32[np.ndarray, "document feature"]
    row_starts: Int64[np.ndarray, nodes_plus_1]
    row_documents: Int64[np.ndarray, row]
    pair_starts: Int64[np.ndarray, rows_plus_1]
    pair_labels: Int64[np.ndarray, pair]
    pair_weights: Float32[np.ndarray, pair]
    label_starts: Int64[np.ndarray, nodes_plus_1]
    label_sums: Float64[np.ndarray, "label feature"]


@compiled
def fit_nodes(
    nodes: NodeArrays,
    capacity: int,
    strength: float,
    most_rounds: int,
    weights: Float64[np.ndarray, "node feature"],
    goes_right: Bool[np.ndarray, label],
    log_likelihoods: Float64[np.ndarray, node],
) -> None:
    """Split the labels of each node and fit its decision.

    Args:
        nodes: Each with two labels at least.
        capacity: Leaves below each node, a power of two.
        strength: lambda_n, above zero.
        most_rounds: Splits of a node at most.
        weights: w of each node, and b in the last column; zeros, written to.
        goes_right: For each label, whether it is on the right of its node; written to.
        log_likelihoods: Eq. 8 at each node, in nats; 0 where all labels are on one side; written
            to.
    """
    most_rows = 1
    for node in range(len(weights)):
        most_rows = max(most_rows, nodes.row_starts[node + 1] - nodes.row_starts[node])
    shape = ((most_rows + _TILE - 1) // _TILE, _TILE)
    tiles = Tiles(
        np.empty((shape[0], nodes.features.shape[1], _TILE), dtype=np.float32),
        np.empty(shape, dtype=np.float32),
        np.empty(shape, dtype=np.float32),
        np.empty(shape, dtype=np.float32),
        np.empty(shape, dtype=np.float32),
    )
    for node in range(len(weights)):
        labels = slice(nodes.label_starts[node], nodes.label_starts[node + 1])
        log_likelihoods[node] = _fit_node(
            nodes, node, tiles, capacity // 2, strength, most_rounds, weights[node],
            goes_right[labels],
        )  # fmt: skip


@compiled
def _fit_node(
    nodes: NodeArrays,
    node: int,
    scratch: Tiles,
    half: int,
    strength: float,
    most_rounds: int,
    weights: Float64[np.ndarray, feature],
    goes_right: Bool[np.ndarray, label],
) -> float:
    """Split and fit one node; return Eq. 8."""
    num_rows = nodes.row_starts[node + 1] - nodes.row_starts[node]
    num_tiles = max(1, (num_rows + _TILE - 1) // _TILE)
    tiles = _first_tiles(scratch, num_tiles)
    _pack(nodes, node, tiles)
    sums = nodes.label_sums[nodes.label_starts[node] : nodes.label_starts[node + 1]]
    _first_split(sums, half, goes_right)
    factor = np.zeros((len(weights), len(weights)))
    # Two labels that fill a node have but one split.
    is_forced = len(goes_right) == 2 and half == 1
    is_tight, is_sampled = is_forced, num_tiles > _FEW_TILES
    better = goes_right.copy()
    # One call of each function here and in `_ascend`: all are compiled into one another.
    for turn in range(most_rounds + 1):
        is_last = turn == most_rounds
        is_sampled = is_sampled and not is_last
        # The first tiles hold rows spread evenly over all of the node (see `Tiles`).
        used = _first_tiles(tiles, _FEW_TILES if is_sampled else num_tiles)
        share = len(used.totals) / num_tiles
        _set_right(nodes, node, num_tiles, goes_right, used.right)
        tolerance = (TIGHT if is_tight or is_last else LOOSE) * max(used.totals.sum(), 1e-30)
        # Eq. 8 for the split as it is; then the best split for these weights (Eq. 9).
        value = _ascend(used, share * strength, tolerance, weights, factor)
        changed = 0.0 if is_forced else _split_anew(sums, weights, half, better)
        if is_last or (is_tight and changed <= _HARDLY_ANY):
            return value
        has_two_sides = not better.all() and better.any()
        if has_two_sides or not is_sampled:
            _copy(better, goes_right)
        if is_sampled and (changed <= _FEW or not has_two_sides):
            is_sampled, is_tight = False, True
            factor /= np.sqrt(share)  # H over all rows is about H / share, and H = L L^T
        elif not has_two_sides:
            return 0.0
        elif not is_sampled:
            is_tight = changed <= (_FEW if is_tight else _HARDLY_ANY)
    return value


@compiled
def _first_tiles(tiles: Tiles, num: int) -> Tiles:
    return Tiles(
        tiles.features[:num],
        tiles.totals[:num],
        tiles.right[:num],
        tiles.curvatures[:num],
        tiles.tried[:num],
    )


@compiled
def _pack(nodes: NodeArrays, node: int, tiles: Tiles) -> None:
    """Lay the node's rows out in tiles."""
    first_row, end = nodes.row_starts[node], nodes.row_starts[node + 1]
    num_tiles, num_features, _ = tiles.features.shape
    for place in range(num_tiles * _TILE):
        # Row after row goes to the next tile, not to the next lane.
        tile, lane, row = place % num_tiles, place // num_tiles, first_row + place
        tiles.totals[tile, lane] = 0.0
        if row >= end:  # lanes that no row fills: weight 0, and features that are finite
            for feature in range(num_features):
                tiles.features[tile, feature, lane] = 0.0
            continue
        document = nodes.row_documents[row]
        for feature in range(num_features):
            tiles.features[tile, feature, lane] = nodes.features[document, feature]
        for pair in range(nodes.pair_starts[row], nodes.pair_starts[row + 1]):
            tiles.totals[tile, lane] += nodes.pair_weights[pair]


@compiled
def _set_right(
    nodes: NodeArrays,
    node: int,
    num_tiles: int,
    goes_right: Bool[np.ndarray, label],
    right: Float32[np.ndarray, "tile 64"],
) -> None:
    """Sum the weights of each row's pairs whose labels are on the right.

    Args:
        nodes: Of which `node` is one.
        node: Its number.
        num_tiles: Of the whole node.
        goes_right: Of the node's labels.
        right: Of the first tiles, or of all; written to.
    """
    first_row, end = nodes.row_starts[node], nodes.row_starts[node + 1]
    first_label = nodes.label_starts[node]
    for tile in range(len(right)):
        for lane in range(_TILE):
            row = first_row + lane * num_tiles + tile  # where `_pack` put it
            total = _F(0)
            if row < end:
                for pair in range(nodes.pair_starts[row], nodes.pair_starts[row + 1]):
                    if goes_right[nodes.pair_labels[pair] - first_label]:
                        total += nodes.pair_weights[pair]
            right[tile, lane] = total


@compiled
def _first_split(
    sums: Float64[np.ndarray, "label feature"], half: int, goes_right: Bool[np.ndarray, label]
) -> None:
    """Split in the middle along the dominant eigenvector of the centred feature sums."""
    num_labels, num_features = sums.shape[0], sums.shape[1] - 1
    centred = np.ascontiguousarray(sums[:, :num_features])
    for feature in range(num_features):
        mean = centred[:, feature].sum() / num_labels
        for label in range(num_labels):
            centred[label, feature] -= mean
    # C is (label, feature). The eigenvector of C^T C, (feature, feature), of largest eigenvalue is
    # C^T u of that of C C^T, (label, label): `eigh` gives eigenvalues rising, so the last column.
    if num_labels < num_features:
        direction = centred.T @ np.linalg.eigh(centred @ centred.T)[1][:, -1].copy()
    else:
        direction = np.linalg.eigh(centred.T @ centred)[1][:, -1].copy()
    # An eigenvector's sign is arbitrary: its largest entry decides.
    if direction.max() < -direction.min():
        direction *= -1.0
    _cut(centred @ direction, num_labels // 2, half, goes_right)


@compiled
def _split_anew(
    sums: Float64[np.ndarray, "label feature"],
    weights: Float64[np.ndarray, feature],
    half: int,
    goes_right: Bool[np.ndarray, label],
) -> float:
    """Split as is best for the weights (Eq. 9); return the share of labels that change sides."""
    gains = sums @ weights  # Delta_y, (label,): right where it is above 0 (Eq. 9)
    # Labels with Delta_y = 0 may go either way: nearest to the middle.
    num_left = min(max(len(gains) // 2, (gains < 0).sum()), (gains <= 0).sum())
    before = goes_right.copy()
    _cut(gains, num_left, half, goes_right)
    return float((goes_right != before).mean())


@compiled
def _cut(
    scores: Float64[np.ndarray, label],
    num_left: int,
    half: int,
    goes_right: Bool[np.ndarray, label],
) -> None:
    """Put the lowest labels on the left, as far as fits; equal scores go by the labels' order."""
    # No side has more labels than leaves: len - half <= num_left <= half.
    num_left = max(min(num_left, half, len(scores)), len(scores) - half)
    goes_right[:] = False
    if num_left == len(scores):
        return
    least_right = _in_order(scores.copy(), num_left)
    num_equal = num_left - (scores < least_right).sum()  # of those on the left
    for label in range(len(scores)):
        if scores[label] == least_right and num_equal > 0:
            num_equal -= 1
        else:
            goes_right[label] = scores[label] >= least_right


@compiled
def _in_order(values: Float64[np.ndarray, value], place: int) -> float:
    """Return the value that has this place among all in order (Hoare's selection).

    numpy's own takes seven seconds to compile.
    """
    # Invariant: the value of this place is among values[first .. last]; all before are at most, all
    # behind at least those.
    first, last = 0, len(values) - 1
    while first < last:
        pivot = values[(first + last) // 2]
        i, j = first, last
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if place <= j:
            last = j
        elif place >= i:
            first = i
        else:
            break
    return float(values[place])


@compiled
def _ascend(
    tiles: Tiles,
    strength: float,
    tolerance: float,
    weights: Float64[np.ndarray, feature],
    factor: Float64[np.ndarray, "feature feature"],
) -> float:
    """Move the weights to within a tolerance of the maximum of Eq. 8 minus strength |w, b|^2.

    Args:
        tiles: Rows.
        strength: Of the regulariser.
        tolerance: What may be left to gain, in nats.
        weights: Where to start; written to.
        factor: Cholesky factor of an earlier Hessian, or zeros; written to.

    Returns:
        Eq. 8 there, without the regulariser.
    """
    num_features = len(weights)
    gradient, there = np.empty(num_features), np.empty(num_features)
    direction, reached = np.empty(num_features), weights.copy()
    value = -np.inf
    gain_before = np.inf if factor[0, 0] > 0 else 0.0
    is_fresh, step = False, 1.0
    # Invariant: value, gradient and tiles.curvatures are those of `weights`; `reached` is tried.
    for _ in range(MAX_STEPS):
        found = evaluate(tiles, reached, strength, tiles.tried, there)
        if found >= value - ROUNDING * abs(value):  # no loss but by rounding: go there
            value, step, is_fresh = found, 1.0, False
            _copy(reached, weights)
            _copy(there, gradient)
            _copy(tiles.tried.ravel(), tiles.curvatures.ravel())
        elif is_fresh:  # the same Hessian serves again, for a shorter step
            step /= 4
        gain, is_fresh = _aim(
            tiles, strength, factor, gradient, direction, STALE * gain_before, is_fresh
        )
        if gain <= 2 * tolerance or step <= LEAST_STEP:
            break
        gain_before = gain
        for feature in range(num_features):
            reached[feature] = weights[feature] + step * direction[feature]
    for weight in weights:  # Eq. 8 itself, the regulariser taken off again
        value += strength * weight * weight
    return value


@compiled
def _copy(source: Shaped[np.ndarray, value], target: Shaped[np.ndarray, value]) -> None:
    # A slice would do, but takes seconds to compile.
    for place in range(len(source)):
        target[place] = source[place]


@compiled
def _aim(
    tiles: Tiles,
    strength: float,
    factor: Float64[np.ndarray, "feature feature"],
    gradient: Float64[np.ndarray, feature],
    direction: Float64[np.ndarray, feature],
    most_gain: float,
    is_fresh: bool,
) -> tuple[float, bool]:
    """Write the Newton direction, by a new Hessian if the one that is known leaves much to gain.

    Args:
        tiles: Rows, with their curvatures.
        strength: Of the regulariser.
        factor: Cholesky factor of a Hessian, or zeros; written to.
        gradient: Where the weights are.
        direction: Written to.
        most_gain: What an old Hessian may promise.
        is_fresh: Whether the Hessian is of where the weights are.

    Returns:
        About twice what the direction promises to gain, and whether its Hessian is fresh.
    """
    while True:
        gain = solve(factor, gradient, direction) if factor[0, 0] > 0 else np.inf
        if is_fresh or gain <= most_gain:
            return gain, is_fresh
        factorise(tiles, strength, factor)
        is_fresh = True
