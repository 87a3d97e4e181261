"""Which documents of a pool to label: those that stand for most of what the model is in doubt of.

A chosen document teaches about the documents that are like it. With w_u how much there is to learn
of document u of the pool, and s(u, d) the cosine of two documents, a set of documents D is worth

    F(D) = sum over u of w_u max over d in D or training of s(u, d)

This is facility location, monotone and submodular, so choosing greedily what adds most to F reaches
at least 1 - 1/e of the best (Nemhauser, Wolsey, Fisher 1978), and what a document adds never grows,
so that a heap with old values finds it (Minoux 1978). Wei, Iyer and Bilmes (2015) choose documents
to label by it, with w_u = 1. Here w_u = sum over labels of p(1 - p), the expected squared error of
u's probabilities. s(u, d) counts for the `num_nearest` documents nearest to u.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from scipy.sparse import csr_array

from longtail.models.memory.memory import NeighbourMemory
from longtail.models.memory.search import nearest_documents
from longtail.models.memory.search_kernels import NO_DOCUMENT
from longtail.models.selection.pool import Pool

NUM_NEAREST = 50
"""Documents of the pool that may stand for a document: those nearest to it, itself among them."""
_SEARCHED = 2048
"""Documents whose nearest are searched between two calls of `progress`."""
_NO_TEMPERATURE = 1.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """A document that was chosen.

    Attributes:
        document: Its number in the pool.
        gain: What it adds to F; in labels that the model is in doubt about.
        for_rare_labels: Whether it was chosen for the rare labels that it may carry.
        nearest: Number of the nearest document that was chosen before it, of those that may stand
            for it; None where there is none.
        similarity: Cosine to that one; 0 without one.
    """

    document: int
    gain: float
    for_rare_labels: bool
    nearest: int | None
    similarity: float


def similar_documents(
    features: Float32[csr_array, "document feature"],
    num_nearest: int = NUM_NEAREST,
    *,
    num_threads: int = 1,
    progress: Callable[[int], object] = int,
) -> Float32[csr_array, "chosen document"]:
    """Return by each document the cosines to those that it may stand for.

    Args:
        features: Rows of length 1 or 0, no value below 0.
        num_nearest: Documents that may stand for one.
        num_threads: That search at the same time.
        progress: Called with a number of documents whenever the nearest of so many were found.
    """
    num_documents = features.shape[0]
    no_labels = csr_array((num_documents, 1), dtype=np.float32)
    memory = NeighbourMemory(features, no_labels, (), num_nearest, _NO_TEMPERATURE)
    rows, columns, values = [], [], []
    for start in range(0, num_documents, _SEARCHED):
        part = csr_array(features[start : start + _SEARCHED])
        found = nearest_documents(memory, part, num_nearest, num_threads=num_threads)
        of, place = np.nonzero(found.documents != NO_DOCUMENT)
        rows.append(found.documents[of, place])
        columns.append(of + start)
        values.append(found.similarities[of, place])
        progress(part.shape[0])
    pairs = (np.concatenate(rows), np.concatenate(columns))
    similar = csr_array((np.concatenate(values), pairs), shape=(num_documents, num_documents))
    similar.sum_duplicates()  # sorts
    return similar


def choose(
    pool: Pool,
    similar: Float32[csr_array, "chosen document"],
    copies: Int64[np.ndarray, document],
    number: int,
    *,
    rare_share: float = 0.0,
) -> list[Chosen]:
    """Return the documents to label, the first choice first; ties by the smaller number.

    Args:
        pool: The documents.
        similar: What `similar_documents` returned.
        copies: How often each stands in the pool.
        number: Of documents to choose; all that can teach anything where there are fewer.
        rare_share: Of the choices, those that are for the rare labels that a document is expected
            to carry, times 1 less its largest cosine to those before it and to training.
    """
    state = _State(pool, similar, pool.uncertainties * copies)
    heap = [(-state.gain(document), document, 0) for document in range(len(pool))]
    heapq.heapify(heap)
    chosen: list[Chosen] = []
    while len(chosen) < min(number, len(pool)):
        place = len(chosen)
        is_rare = int((place + 1) * rare_share) > int(place * rare_share)
        document = state.rarest() if is_rare else None
        if document is None:
            is_rare, document = False, _first(heap, state, place)
        if document is None:
            break
        chosen.append(state.take(document, is_rare=is_rare))
    return chosen


class _State:
    """How well each document is covered by training and by those that were chosen."""

    def __init__(
        self,
        pool: Pool,
        similar: Float32[csr_array, "chosen document"],
        weights: Float64[np.ndarray, document],
    ) -> None:
        self._starts, self._of, self._cosines = similar.indptr, similar.indices, similar.data
        self._weights = weights
        has_features = np.diff(pool.features.indptr) > 0  # without, only biases speak
        self._rare_labels = np.where(has_features, pool.rare_labels, 0)
        self._covered = pool.covered.astype(np.float32)
        self._nearest: Int64[np.ndarray, document] = np.full(len(pool), NO_DOCUMENT, np.int64)
        self._nearest_cosines: Float32[np.ndarray, document] = np.zeros(len(pool), np.float32)
        self.is_taken: Bool[np.ndarray, document] = np.zeros(len(pool), dtype=bool)

    def gain(self, document: int) -> float:
        """Return what a document would add to F."""
        of, cosines = self._row(document)
        added = np.maximum(cosines - self._covered[of], 0)
        return float((self._weights[of] * added).sum())

    def rarest(self) -> int | None:
        """Return the document to choose for its rare labels; None where none may carry one."""
        values = self._rare_labels * (1 - self._covered)
        values[self.is_taken] = 0
        best = int(values.argmax())
        return best if values[best] > 0 else None

    def take(self, document: int, *, is_rare: bool) -> Chosen:
        """Choose a document."""
        nearest = int(self._nearest[document])
        chosen = Chosen(
            document,
            self.gain(document),
            is_rare,
            None if nearest == NO_DOCUMENT else nearest,
            float(self._nearest_cosines[document]),
        )
        of, cosines = self._row(document)
        self.is_taken[document] = True
        nearer = cosines > self._nearest_cosines[of]
        self._nearest[of[nearer]] = document
        self._nearest_cosines[of[nearer]] = cosines[nearer]
        self._covered[of] = np.maximum(self._covered[of], cosines)
        return chosen

    def _row(
        self, document: int
    ) -> tuple[Int64[np.ndarray, some] | np.ndarray, Float32[np.ndarray, some]]:
        part = slice(self._starts[document], self._starts[document + 1])
        return self._of[part], self._cosines[part]


def _first(heap: list[tuple[float, int, int]], state: _State, place: int) -> int | None:
    """Return the document that adds most now; None where none adds anything.

    Args:
        heap: Minus what each document added when it was looked at, the document, and the number of
            those that were chosen then. What it adds now is no more.
        state: What was chosen so far.
        place: How many those are.
    """
    while heap:
        value, document, looked_at = heapq.heappop(heap)
        if state.is_taken[document] or value == 0:
            continue
        if looked_at == place:
            return document
        heapq.heappush(heap, (-state.gain(document), document, place))
    return None
