"""One Newton step of a node's classifier, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64

from longtail.models.jit import vectorised
from longtail.models.label_tree.exponential import exp_of_minus_float32

ROUNDING = 1e-6  # relative error of a value that is summed from float32 rows
_TILE = 64  # rows; a constant, so that loops over them become vector instructions
_FEW_TILES = 128  # that a larger node is first split by
_F = np.float32


class Tiles(NamedTuple):
    """Rows of one node: row r is in tile r % tiles, so the first tiles are a sample of the rows.

    Attributes:
        features: x of each row; zeros where there is none.
        totals: Its weight.
        right: The part of its weight whose labels are on the right.
        curvatures: Weight of its outer product in the Hessian, where the ascent is.
        tried: The same where it is tried to go.
    """

    features: Float32[np.ndarray, "tile feature 64"]
    totals: Float32[np.ndarray, "tile 64"]
    right: Float32[np.ndarray, "tile 64"]
    curvatures: Float32[np.ndarray, "tile 64"]
    tried: Float32[np.ndarray, "tile 64"]


@vectorised
def evaluate(
    tiles: Tiles,
    weights: Float64[np.ndarray, feature],
    strength: float,
    curvatures: Float32[np.ndarray, "tile 64"],
    gradient: Float64[np.ndarray, feature],
) -> float:
    """Return the objective; write its gradient, and the weights of its Hessian."""
    # Eq. 8 - lambda |w, b|^2: sum over rows of right s - total log(1 + e^s), s = w·x + b.
    num_tiles, num_features, _ = tiles.features.shape
    scores, residuals = np.empty(_TILE, dtype=np.float32), np.empty(_TILE, dtype=np.float32)
    sums = np.zeros((num_features, _TILE))  # of each lane by itself, in float64
    value = 0.0
    for tile in range(num_tiles):
        features = tiles.features[tile]
        _score(features, weights, scores)
        value += _logistic(
            scores, tiles.totals[tile], tiles.right[tile], residuals, curvatures[tile]
        )
        for feature in range(num_features):
            for lane in range(_TILE):
                sums[feature, lane] += residuals[lane] * features[feature, lane]
    for feature in range(num_features):
        total = 0.0
        for lane in range(_TILE):
            total += sums[feature, lane]
        gradient[feature] = total - 2 * strength * weights[feature]  # sum residual x - 2 lambda w
        value -= strength * weights[feature] * weights[feature]
    return value


@vectorised
def _score(
    features: Float32[np.ndarray, "feature 64"],
    weights: Float64[np.ndarray, feature],
    scores: Float32[np.ndarray, 64],
) -> None:
    """Write w·x + b of a tile's rows, four features at a time."""
    num_features = len(weights)
    scores[:] = 0.0
    whole = num_features // 4 * 4
    for first in range(0, whole, 4):
        a, b, c, d = (
            _F(weights[first]), _F(weights[first + 1]), _F(weights[first + 2]),
            _F(weights[first + 3]),
        )  # fmt: skip
        for lane in range(_TILE):
            scores[lane] += (a * features[first, lane] + b * features[first + 1, lane]) + (
                c * features[first + 2, lane] + d * features[first + 3, lane]
            )
    for feature in range(whole, num_features):
        weight = _F(weights[feature])
        for lane in range(_TILE):
            scores[lane] += weight * features[feature, lane]


@vectorised
def _logistic(
    scores: Float32[np.ndarray, 64],
    totals: Float32[np.ndarray, 64],
    right: Float32[np.ndarray, 64],
    residuals: Float32[np.ndarray, 64],
    curvatures: Float32[np.ndarray, 64],
) -> float:
    """Return the log likelihood of a tile's rows, and write its derivatives to the scores.

    Polynomials, not library functions, so that the loop becomes vector instructions; right to
    a few millionths.
    """
    value = 0.0
    for lane in range(_TILE):
        score, total = scores[lane], totals[lane]
        power = exp_of_minus_float32(abs(score))  # e^-|s|
        # log(1 + e^-|s|) as 2 artanh(e^-|s| / (2 + e^-|s|))
        z = power / (_F(2) + power)
        y = z * z
        series = _F(1 / 7) + y * (_F(1 / 9) + y * (_F(1 / 11) + y * _F(1 / 13)))
        log = _F(2) * z * (_F(1) + y * (_F(1 / 3) + y * (_F(1 / 5) + y * series)))
        larger = _F(1) / (_F(1) + power)  # sigma(|s|)
        probability = larger if score >= 0 else power * larger  # sigma(s)
        # log(1 + e^s) = max(s, 0) + log(1 + e^-|s|), which can't overflow
        value += right[lane] * score - total * (max(score, _F(0)) + log)
        residuals[lane] = right[lane] - total * probability  # the derivative by s
        curvatures[lane] = total * power * larger * larger  # minus the second: sigma(s) sigma(-s)
    return value


@vectorised
def factorise(
    tiles: Tiles, strength: float, factor: Float64[np.ndarray, "feature feature"]
) -> None:
    """Write the Cholesky factor of the Hessian, its sign turned, into the lower triangle."""
    # H = X^T diag(curvatures) X + 2 lambda I, minus the Hessian of the objective; lower triangle.
    num_tiles, num_features, _ = tiles.features.shape
    factor[:] = 0.0
    weighted = np.empty(_TILE, dtype=np.float32)
    for tile in range(num_tiles):
        features, curvatures = tiles.features[tile], tiles.curvatures[tile]
        for i in range(num_features):
            for lane in range(_TILE):
                weighted[lane] = curvatures[lane] * features[i, lane]
            for j in range(i + 1):
                total = _F(0)
                for lane in range(_TILE):
                    total += weighted[lane] * features[j, lane]
                factor[i, j] += total
    for i in range(num_features):
        # Rounding must not make it indefinite: this only makes steps a little shorter.
        factor[i, i] = factor[i, i] * (1 + ROUNDING) + 2 * strength
    _cholesky(factor)


@vectorised
def _cholesky(matrix: Float64[np.ndarray, "feature feature"]) -> None:
    """Replace the lower triangle of a positive definite matrix by its Cholesky factor."""
    for i in range(len(matrix)):
        for j in range(i + 1):
            # Invariant: columns before j of row i, and all rows before i, are the factor's.
            rest = matrix[i, j]
            for k in range(j):
                rest -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = np.sqrt(rest) if i == j else rest / matrix[j, j]


@vectorised
def solve(
    factor: Float64[np.ndarray, "feature feature"],
    gradient: Float64[np.ndarray, feature],
    direction: Float64[np.ndarray, feature],
) -> float:
    """Write the Newton direction H^-1 g; return g·H^-1 g, about twice what it promises to gain.

    With H = L L^T: L y = g from above, then L^T d = y from below.
    """
    num_features = len(gradient)
    for i in range(num_features):
        rest = gradient[i]
        for j in range(i):
            rest -= factor[i, j] * direction[j]
        direction[i] = rest / factor[i, i]
    gain = 0.0
    for i in range(num_features - 1, -1, -1):
        rest = direction[i]
        for j in range(i + 1, num_features):
            rest -= factor[j, i] * direction[j]
        direction[i] = rest / factor[i, i]
        gain += gradient[i] * direction[i]
    return gain
