"""Compiled kernels of the sparse model's training: dual coordinate descent on working sets.

The solver is that of Hsieh et al. (2008, "A dual coordinate descent method for large-scale linear
SVM", algorithm 3), with the shrinking and the stopping rule of liblinear. What is around it, the
search for hard negatives and the sample of the rest, is described in
`longtail.training.sparse.svm`. The kernels release the interpreter's lock and take all that is
random from seed and label, so labels may be fitted on any thread in any order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int32, Int64, UInt8, UInt32

from longtail.models.jit import compiled
from longtail.training.sparse.descent_steps import (
    _ABSENT,
    _HARD,
    _POSITIVE,
    _SAMPLED,
    below,
    descend,
    mixed,
)

_TOLERANCE = 0.1  # on the spread of projected gradients, as liblinear's dual solver has it
_ROUGH_TOLERANCE = 0.5  # of classifiers that only search for hard negatives
_CENTROID_BELOW = 0.02  # smaller weights of a centroid play no part in the first search
_SEARCH_BELOW = 0.1  # smaller weights of a classifier play no part in later ones


class Rows(NamedTuple):
    """The arrays of a CSR matrix, and the squared length of each row."""

    indptr: Int64[np.ndarray, rows_plus_1]
    indices: UInt32[np.ndarray, nonzero]  # unsigned: an index that can't be negative costs less
    data: Float32[np.ndarray, nonzero]
    squares: Float32[np.ndarray, row]


class Plan(NamedTuple):
    """What to fit; see `longtail.training.configuration.sections.SparseConfig`.

    Attributes:
        cost: C, what an error costs.
        is_hinge: Whether the loss is the hinge; else its square.
        prune_below: Smaller weights are dropped.
        rounds: How often hard negatives are looked for; 0: every document is taken.
        hard_negatives: Looked for each round.
        hard_negatives_per_positive: And so many more for each positive.
        sampled_negatives: Drawn to stand for the rest.
        postings: Entries of the index that a search may read.
        postings_per_positive: And so many more for each positive.
        seed: Of the samples and of the solver's order.
    """

    cost: float
    is_hinge: bool
    prune_below: float
    rounds: int
    hard_negatives: int
    hard_negatives_per_positive: int
    sampled_negatives: int
    postings: int
    postings_per_positive: int
    seed: int


class Scratch(NamedTuple):
    """One thread's memory; all zero between labels.

    Attributes:
        weights: w, and b as the last.
        is_touched: Features that a label has weights for.
        scores: Of the documents in a search.
        kind: What each document is to the label.
    """

    weights: Float64[np.ndarray, features_plus_1]
    is_touched: UInt8[np.ndarray, feature]
    scores: Float32[np.ndarray, document]
    kind: UInt8[np.ndarray, document]


class WorkingSet(NamedTuple):
    """The documents that a label is trained on.

    Attributes:
        rows: Their numbers; the label's own come first.
        alpha: Dual variable of each.
        is_updated: Whether it was ever other than 0.
    """

    rows: Int32[np.ndarray, row]
    alpha: Float64[np.ndarray, row]
    is_updated: UInt8[np.ndarray, row]


def new_scratch(num_documents: int, num_features: int) -> Scratch:
    """Return the memory that `fit_chunk` needs."""
    return Scratch(
        weights=np.zeros(num_features + 1),
        is_touched=np.zeros(num_features, dtype=np.uint8),
        scores=np.zeros(num_documents, dtype=np.float32),
        kind=np.zeros(num_documents, dtype=np.uint8),
    )


@compiled
def fit_chunk(
    by_document: Rows,
    by_feature: Rows,
    by_label: Rows,
    labels: Int64[np.ndarray, chunk],
    plan: Plan,
    scratch: Scratch,
) -> tuple[
    Int64[np.ndarray, chunk_plus_1],
    Int32[np.ndarray, nonzero],
    Float32[np.ndarray, nonzero],
    Float32[np.ndarray, chunk],
]:
    """Fit some labels, one after the other.

    Args:
        by_document: Features of the documents.
        by_feature: The same transposed.
        by_label: Documents of the labels.
        labels: Those to fit; none without a document.
        plan: How.
        scratch: From `new_scratch`, used by no other thread meanwhile.

    Returns:
        Their weights as the arrays of a CSR matrix (indptr, indices, data), and their biases.
    """
    starts = np.zeros(len(labels) + 1, dtype=np.int64)
    bias = np.empty(len(labels), dtype=np.float32)
    indices = np.empty(1024, dtype=np.int32)
    values = np.empty(1024, dtype=np.float32)
    # Invariant: the weights of labels[:i] are indices[: starts[i]] and values[: starts[i]], and the
    # scratch is all zero.
    for i in range(len(labels)):
        label = labels[i]
        positives = by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]]
        touched = _fit_label(by_document, by_feature, positives, label, plan, scratch)
        kept = np.sort(_above(touched, plan.prune_below, scratch.weights))  # rising columns, as CSR
        begin, end = starts[i], starts[i] + len(kept)
        if end > len(indices):  # doubled, so that all copies together are O(nonzeros)
            indices, values = _grown(indices, begin, 2 * end), _grown(values, begin, 2 * end)
        for k in range(len(kept)):
            indices[begin + k], values[begin + k] = kept[k], scratch.weights[kept[k]]
        starts[i + 1] = end
        bias[i] = scratch.weights[-1]  # b is the weight of a feature that is 1 in every document
        scratch.weights[-1] = 0
        _forget(touched, scratch)
    end = starts[-1]
    return starts, indices[:end].copy(), values[:end].copy(), bias


@compiled
def _grown(array, length, capacity):
    larger = np.empty(capacity, dtype=array.dtype)
    larger[:length] = array[:length]
    return larger


@compiled
def _fit_label(by_document, by_feature, positives, label, plan, scratch):
    """Leave a label's weights in the scratch; return the features that may have one."""
    num_documents = len(scratch.kind)
    num_positive = len(positives)
    if num_positive == num_documents:  # there is nothing to tell apart
        scratch.weights[-1] = 1
        return np.empty(0, dtype=np.int32)
    expected = plan.hard_negatives + plan.hard_negatives_per_positive * num_positive
    # Positives, each round's hard negatives and the sample; or all documents, if those are fewer.
    capacity = num_positive + plan.rounds * expected + plan.sampled_negatives
    if plan.rounds == 0 or capacity > num_documents:
        capacity = num_documents
    chosen = WorkingSet(
        np.empty(capacity, dtype=np.int32), np.zeros(capacity), np.zeros(capacity, dtype=np.uint8)
    )
    # The state follows from seed and label alone: labels may be fitted in any order.
    random = np.array([mixed(np.uint64(plan.seed) ^ mixed(np.uint64(label)))], dtype=np.uint64)
    size = _add(chosen.rows, 0, scratch.kind, positives, _POSITIVE)  # rows[:num_positive], for good
    if plan.rounds == 0:
        # Exact: min |w|^2 / 2 + b^2 / 2 + C sum over all documents of the loss of y (w x + b).
        everything = np.arange(num_documents).astype(np.uint32)
        size = _add(chosen.rows, size, scratch.kind, everything, _HARD)
        descend(by_document, chosen, size, num_positive, 1.0, _TOLERANCE, plan, scratch, random)
    for number in range(plan.rounds):
        is_first = number == 0
        hard = _hard_documents(
            by_document, by_feature, positives, chosen, size, expected, is_first, plan, scratch
        )
        size = _add(chosen.rows, size, scratch.kind, hard, _HARD)
        if is_first:
            size = sample(chosen.rows, size, scratch.kind, plan.sampled_negatives, random)
        # A sampled document that has become a hard one stands for itself: count what is left.
        num_sampled = 0
        for document in chosen.rows[:size]:
            num_sampled += scratch.kind[document] == _SAMPLED
        # Documents outside of positives and hard ones, a sampled one: N - (size - sampled) in all,
        # so that the weighted sum over the set estimates that over all documents: without bias in
        # the first round, too heavily later (see `longtail.training.sparse.svm`).
        share = (num_documents - size + num_sampled) / max(1, num_sampled)
        tolerance = _TOLERANCE if number + 1 == plan.rounds else _ROUGH_TOLERANCE
        # alpha stays from round to round, so each starts from the solution of the one before.
        descend(by_document, chosen, size, num_positive, share, tolerance, plan, scratch, random)
    for document in chosen.rows[:size]:
        scratch.kind[document] = _ABSENT
    return _features_of(by_document, chosen, size, scratch)


@compiled
def _add(rows, size, kind, documents, what):
    """Take documents into the set; those that were in it as samples stand for themselves now."""
    for document in documents:
        if kind[document] == _ABSENT:
            rows[size] = document
            size += 1
            kind[document] = what
        elif kind[document] == _SAMPLED:  # it keeps its place in `rows`, and its alpha
            kind[document] = what
    return size


@compiled
def _hard_documents(
    by_document, by_feature, positives, chosen, size, expected, is_first, plan, scratch
):
    """Return the documents without the label that its weights rank highest.

    In the first round, the mean of its documents stands for the weights; later, only documents
    that violate the margin are returned.
    """
    budget = plan.postings + plan.postings_per_positive * len(positives)
    if is_first:
        features = _centroid(by_document, positives, scratch)  # in scratch.weights
        least = np.float32(_CENTROID_BELOW)
        # Every document that shares a feature with the centroid has a score above 0.
        found = search(by_feature, features, least, np.float32(0), expected, budget, scratch)
        _forget(features, scratch)
        return found
    features = _features_of(by_document, chosen, size, scratch)
    # A negative violates the margin where -(w x + b) < 1, that is w x > -1 - b.
    above = np.float32(-1 - scratch.weights[-1])
    return search(by_feature, features, np.float32(_SEARCH_BELOW), above, expected, budget, scratch)


@compiled
def _centroid(by_document, positives, scratch):
    """Leave the mean of some documents in the weights; return its features."""
    # w_f = mean over the positives of x_f; `touched` has each f with some x_f != 0 once.
    touched = np.empty(64, dtype=np.int32)
    size = 0
    for document in positives:
        for k in range(by_document.indptr[document], by_document.indptr[document + 1]):
            feature = by_document.indices[k]
            scratch.weights[feature] += by_document.data[k] / len(positives)
            if not scratch.is_touched[feature]:
                if size == len(touched):
                    touched = _grown(touched, size, 2 * size)
                scratch.is_touched[feature] = 1
                touched[size] = feature
                size += 1
    return touched[:size]


@compiled
def _features_of(by_document, chosen, size, scratch):
    """Return the features of all documents that have played a part."""
    # w = sum of alpha_i y_i x_i, so w_f can differ from 0 only where some x_i with alpha_i > 0, now
    # or earlier, has the feature.
    touched = np.empty(1024, dtype=np.int32)
    count = 0
    for i in range(size):
        if not chosen.is_updated[i]:
            continue
        document = chosen.rows[i]
        for k in range(by_document.indptr[document], by_document.indptr[document + 1]):
            feature = by_document.indices[k]
            if not scratch.is_touched[feature]:
                if count == len(touched):
                    touched = _grown(touched, count, 2 * count)
                scratch.is_touched[feature] = 1
                touched[count] = feature
                count += 1
    for feature in touched[:count]:
        scratch.is_touched[feature] = 0
    return touched[:count]


@compiled
def _forget(touched, scratch):
    for feature in touched:
        scratch.weights[feature] = 0
        scratch.is_touched[feature] = 0


@compiled
def _above(features, least, weights):
    """Return the features of at least this weight, as float32 has it, and of any."""
    kept = np.empty(len(features), dtype=features.dtype)
    count = 0
    for feature in features:
        weight = abs(np.float32(weights[feature]))
        if weight >= least and weight > 0:
            kept[count] = feature
            count += 1
    return kept[:count]


@compiled
def search(by_feature, features, least, above, expected, budget, scratch):
    """Return up to `expected` documents without the label whose scores are highest, and > `above`.

    Features are read in falling order of their weights' magnitude until the budget is spent.
    """
    features = _above(features, least, scratch.weights)
    order = features[np.argsort(-np.abs(scratch.weights[features]))]
    # scores[d] is the sum of w_f x_df over the features read so far; a document enters `reached` at
    # its first, and again where its score has come back to 0 (see `_best_of`).
    reached = np.empty(1024, dtype=np.int32)
    size = 0
    for feature in order:
        weight = np.float32(scratch.weights[feature])
        begin, end = by_feature.indptr[feature], by_feature.indptr[feature + 1]
        budget -= end - begin  # postings: documents with the feature
        if budget < 0:
            break
        if size + end - begin > len(reached):
            reached = _grown(reached, size, 2 * (size + end - begin))
        for k in range(begin, end):
            document = by_feature.indices[k]
            if scratch.scores[document] == 0:
                reached[size] = document
                size += 1
            scratch.scores[document] += weight * by_feature.data[k]
    return _best_of(reached[:size], above, expected, scratch)


@compiled
def _best_of(reached, above, expected, scratch):
    """Return the highest-scoring of the documents that a search reached, and forget the scores."""
    values = np.empty(len(reached), dtype=np.float32)
    count = 0
    for document in reached:
        score = scratch.scores[document]
        scratch.scores[document] = 0  # a document reached twice has no score the second time
        if score > above and score != 0 and scratch.kind[document] != _POSITIVE:
            reached[count], values[count] = document, score
            count += 1
    if expected == 0 or count <= expected:
        return reached[: min(count, expected)].copy()
    kth = np.partition(values[:count], count - expected)[count - expected]  # `expected`-th highest
    found = np.empty(expected, dtype=np.int32)
    size = 0
    for is_tie in (False, True):  # all above the k-th score, then of those equal to it the first
        for i in range(count):
            if size < expected and (values[i] == kth if is_tie else values[i] > kth):
                found[size] = reached[i]
                size += 1
    return found[:size]


@compiled
def sample(rows, size, kind, expected, random):
    """Add documents drawn uniformly, without repeats, from those that are not in the set."""
    num_documents = len(kind)
    num_absent = num_documents - size
    expected = min(expected, num_absent)
    if 2 * expected < num_absent:  # few: draw until one is outside of the set
        while expected:
            document = below(random, num_documents)
            if kind[document] == _ABSENT:
                rows[size] = document
                size += 1
                kind[document] = _SAMPLED
                expected -= 1
        return size
    for document in range(num_documents):  # each with the probability that fills the sample
        if kind[document] == _ABSENT:
            if below(random, num_absent) < expected:
                rows[size] = document
                size += 1
                kind[document] = _SAMPLED
                expected -= 1
            num_absent -= 1
    return size
