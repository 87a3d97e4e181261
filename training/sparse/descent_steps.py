"""Passes of dual coordinate descent over the documents of one label."""

from __future__ import annotations

import numpy as np

from longtail.models.jit import compiled

_MAX_PASSES = 100  # the ranking no longer changes long before the solver converges
_ABSENT, _POSITIVE, _HARD, _SAMPLED = np.uint8(0), np.uint8(1), np.uint8(2), np.uint8(3)


@compiled
def descend(by_document, chosen, size, num_positive, share, tolerance, plan, scratch, random):
    """Minimise the dual problem over a working set, from the alphas that stand.

    A sampled document counts as `share` documents. Unlike in liblinear, a document at its bound is
    left out at once; all come back when the others are done, until none moves.
    """
    # The dual: minimise alpha' (Q + D) alpha / 2 - sum of alpha over 0 <= alpha_i <= U_i, with
    # Q_ij = y_i y_j (x_i x_j + 1); the 1 is that of the bias.
    # Hinge: U_i = C_i, D = 0. Squared hinge: U_i = inf, D_ii = 1 / (2 C_i).
    diagonal = np.zeros(size)
    most = np.full(size, np.inf)
    for i in range(size):
        is_sampled = scratch.kind[chosen.rows[i]] == _SAMPLED
        cost = plan.cost * share if is_sampled else plan.cost
        if plan.is_hinge:
            most[i] = cost
        else:
            diagonal[i] = 0.5 / cost
    order = np.arange(size)
    num_active = size
    # order[:num_active] are the active positions, order[num_active:] those left out at a bound.
    for _ in range(_MAX_PASSES):
        is_complete = num_active == size
        for i in range(num_active):  # Fisher-Yates: a new random order for every pass
            j = i + below(random, num_active - i)
            order[i], order[j] = order[j], order[i]
        num_active, spread = _pass_over(
            by_document, chosen, order, num_active, num_positive, diagonal, most, scratch.weights
        )
        if spread <= tolerance:
            if is_complete:
                break
            num_active = size  # the active ones are done: let all come back, and check


@compiled
def _pass_over(by_document, chosen, order, num_active, num_positive, diagonal, most, weights):
    """Update the alpha of each active document once; return how many stay active, and their spread.

    The spread is that of the projected gradients: 0 at the optimum.
    """
    alpha, bias = chosen.alpha, len(weights) - 1
    highest = lowest = 0.0
    s = 0
    while s < num_active:
        i = order[s]
        document = chosen.rows[i]
        begin, end = by_document.indptr[document], by_document.indptr[document + 1]
        sign = 1.0 if i < num_positive else -1.0  # y_i: positives come first
        score = weights[bias] + _product(by_document, begin, end, weights)
        # G_i = y_i (w x_i + b) - 1 + D_ii alpha_i
        gradient = sign * score - 1 + alpha[i] * diagonal[i]
        if (alpha[i] == 0 and gradient >= 0) or (alpha[i] == most[i] and gradient <= 0):
            # The projected gradient is 0 at this bound: swap it out of the active part.
            num_active -= 1
            order[s], order[num_active] = order[num_active], order[s]
            continue
        s += 1
        highest, lowest = max(highest, gradient), min(lowest, gradient)
        # alpha_i <- min(max(alpha_i - G_i / (Q_ii + D_ii), 0), U_i), exact along this coordinate
        curvature = by_document.squares[document] + 1 + diagonal[i]
        updated = min(max(alpha[i] - gradient / curvature, 0.0), most[i])
        step = (updated - alpha[i]) * sign
        alpha[i] = updated
        chosen.is_updated[i] = 1
        # Invariant: w = sum of alpha_i y_i x_i, and b = sum of alpha_i y_i.
        weights[bias] += step
        for k in range(begin, end):
            weights[by_document.indices[k]] += step * by_document.data[k]
    return num_active, highest - lowest


@compiled
def _product(by_document, begin, end, weights):
    """Return the inner product of a row and the weights, by four sums that don't wait."""
    indices, data = by_document.indices, by_document.data
    a = b = c = d = 0.0
    k = begin
    while k + 4 <= end:
        a += weights[indices[k]] * data[k]
        b += weights[indices[k + 1]] * data[k + 1]
        c += weights[indices[k + 2]] * data[k + 2]
        d += weights[indices[k + 3]] * data[k + 3]
        k += 4
    while k < end:
        a += weights[indices[k]] * data[k]
        k += 1
    return (a + b) + (c + d)


@compiled
def mixed(state):
    """Return the output of splitmix64 for a state."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@compiled
def below(random, limit):
    """Return the next random whole number from 0 to limit - 1."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    high = mixed(random[0]) >> np.uint64(32)  # 32 bits: documents are counted in int32
    return np.int64((high * np.uint64(limit)) >> np.uint64(32))
