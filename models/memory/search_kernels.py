"""The documents of largest inner product with sparse rows, exactly: the compiled loops.

Postings (the documents of each feature) propose, and inner products of whole rows decide: these are
summed in float64 in the order of the document's features and rounded once, whoever asks.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.models.jit import compiled

NO_DOCUMENT = -1
"""Fills a row where fewer documents than asked for share a feature with it."""
_CHECK_AT = 0.6
"""Whether the rest can be left out is looked at when so large a share of the postings is left."""
_COMPARED = 2.0
"""Postings that take as long to read as one feature of a document that is compared."""


def nearest_of_rows(
    queries: Float32[csr_array, "row feature"],
    documents: Float32[csr_array, "document feature"],
    postings: Float32[csr_array, "feature document"],
    largest: Float32[np.ndarray, feature],
    longest: float,
    k: int,
) -> tuple[Int64[np.ndarray, "row k"], Float32[np.ndarray, "row k"]]:
    """Return the k documents of largest inner product with each row, and these products.

    Only positive products count; ties by the smaller document number. Features are read in falling
    order of squared weight to number of postings. What those not yet read can add to any document
    is at most their norm times that of the longest document, and at most the sum of their weights
    times each one's largest value; so once that is small, all that can still be among the best are
    a few documents, which are compared feature by feature, and the long postings of common words
    are never read.

    Args:
        queries: No value below 0.
        documents: No value below 0.
        postings: The documents transposed.
        largest: Value of each feature in any document.
        longest: Norm of any document, at most.
        k: At least 1.
    """
    found = np.full((queries.shape[0], k), NO_DOCUMENT, dtype=np.int64)
    similarities = np.zeros((queries.shape[0], k), dtype=np.float32)
    _nearest_of_rows(
        (queries.indptr, queries.indices, queries.data),
        (documents.indptr, documents.indices, documents.data),
        (postings.indptr, postings.indices, postings.data),
        largest,
        longest,
        found,
        similarities,
    )
    return found, similarities


@compiled
def _nearest_of_rows(queries, documents, postings, largest, longest, found, similarities):
    query = np.zeros(len(largest), dtype=np.float32)
    totals = np.zeros(len(documents[0]) - 1, dtype=np.float32)
    for row in range(len(found)):
        features = queries[1][queries[0][row] : queries[0][row + 1]]
        weights = queries[2][queries[0][row] : queries[0][row + 1]]
        query[features] = weights
        order, left, bounds = _plan(features, weights, postings[0], largest, longest)
        slack = (len(features) + 8) * 2.0**-23 * bounds[0]  # more than rounding can do
        _propose(
            (features[order], weights[order], left, bounds, slack),
            query, documents, postings, totals, found[row], similarities[row],
        )  # fmt: skip
        query[features] = 0
        totals[:] = 0


@compiled
def _plan(features, weights, starts, largest, longest):
    """Return the order of the features, and before each: postings left, and what they can add."""
    num_features = len(features)
    lengths = (starts[features + 1] - starts[features]).astype(np.float64)
    order = np.argsort(-(weights.astype(np.float64) ** 2) / np.maximum(lengths, 1.0))
    left = np.zeros(num_features + 1)
    bounds = np.zeros(num_features + 1)
    squares = 0.0
    products = 0.0
    for place in range(num_features - 1, -1, -1):
        weight = np.float64(weights[order[place]])
        squares += weight * weight
        products += weight * largest[features[order[place]]]
        left[place] = left[place + 1] + lengths[order[place]]
        bounds[place] = min(np.sqrt(squares) * longest, products)
    return order, left, bounds


@compiled
def _propose(plan, query, documents, postings, totals, found, similarities):
    """Add up postings until few documents can be among the best, and compare these."""
    features, weights, left, bounds, slack = plan
    cost = _COMPARED * len(documents[1]) / max(1, len(totals))
    check_at = left[0] * _CHECK_AT
    for place in range(len(features)):
        _add_postings(features[place], weights[place], postings, totals)
        rest = left[place + 1]
        if place + 1 < len(features) and rest > check_at:
            continue
        check_at = rest * _CHECK_AT
        least = _kth_product(query, documents, totals, found, similarities) - slack
        least -= bounds[place + 1]
        is_last = place + 1 == len(features)
        if not is_last and (least <= 0 or _count_from(totals, least) * cost > rest):
            continue
        _compare(query, documents, totals, least, found, similarities)
        return


@compiled
def _add_postings(feature, weight, postings, totals):
    starts, numbers, values = postings
    for i in range(starts[feature], starts[feature + 1]):
        totals[numbers[i]] += weight * values[i]


@compiled
def _count_from(totals, least):
    count = 0
    for total in totals:
        count += total >= least
    return count


@compiled
def _kth_product(query, documents, totals, found, similarities):
    """Return a product that k documents reach: the smallest of those with the largest totals.

    The arguments found and similarities are overwritten. With fewer than k documents it is 0.
    """
    size = 0
    for document in range(len(totals)):
        total = totals[document]
        if total > 0 and (size < len(found) or total > similarities[0]):
            size = _keep(found, similarities, size, document, total)
    if size < len(found):
        return 0.0
    least = np.inf
    for place in range(size):
        least = min(least, _product(query, documents, found[place]))
    return least


@compiled
def _compare(query, documents, totals, least, found, similarities):
    """Write down the best of the documents whose totals are large enough, best first."""
    size = 0
    for document in range(len(totals)):
        if totals[document] >= least and totals[document] > 0:
            product = np.float32(_product(query, documents, document))
            if product > 0 and (size < len(found) or product > similarities[0]):
                size = _keep(found, similarities, size, document, product)
    if size < len(found):  # the heap was never full, and is none yet
        _heapify(found, similarities, size)
    for last in range(size - 1, 0, -1):  # the worst goes last, until all are in order
        _swap(found, similarities, 0, last)
        _sink(found, similarities, 0, last)
    found[size:] = NO_DOCUMENT
    similarities[size:] = 0


@compiled
def _product(query, documents, document):
    starts, features, values = documents
    product = 0.0
    for i in range(starts[document], starts[document + 1]):
        product += np.float64(query[features[i]]) * values[i]
    return product


@compiled
def _keep(found, similarities, size, document, similarity):
    """Put a document into the heap of the best, and return its size; later ones lose ties."""
    if size == len(found):
        found[0], similarities[0] = document, similarity
        _sink(found, similarities, 0, size)
        return size
    found[size], similarities[size] = document, similarity
    if size + 1 == len(found):
        _heapify(found, similarities, size + 1)
    return size + 1


@compiled
def _heapify(found, similarities, size):
    for place in range(size // 2 - 1, -1, -1):
        _sink(found, similarities, place, size)


@compiled
def _sink(found, similarities, place, size):
    """Restore the heap below a place: every document is worse than those below it."""
    while True:
        worst = place
        for below in (2 * place + 1, 2 * place + 2):
            if below < size and (
                similarities[below] < similarities[worst]
                or (similarities[below] == similarities[worst] and found[below] > found[worst])
            ):
                worst = below
        if worst == place:
            return
        _swap(found, similarities, place, worst)
        place = worst


@compiled
def _swap(found, similarities, first, second):
    found[first], found[second] = found[second], found[first]
    similarities[first], similarities[second] = similarities[second], similarities[first]
