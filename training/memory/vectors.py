"""The training documents that a model remembers by the vectors of its encoder."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float32, Int64
from joblib import cpu_count
from scipy.sparse import csr_array
from sklearn.cluster import MiniBatchKMeans

from longtail.models.memory.memory import ordered
from longtail.models.memory.vectors import ByteVectors, Clusters, VectorMemory
from longtail.models.names import WORD_NEIGHBOURS, WORD_VECTORS
from longtail.training.fitting import FittedOn, Fitting

logger = logging.getLogger(__name__)

EXACT_UP_TO = 300_000
"""Documents that are all compared with a text; of more, those of the nearest clusters."""
LEAST_RECALL = 0.98
_NUM_ASKED = 500
"""Documents whose nearest ones are looked for, to measure the recall."""
_NUM_NEIGHBOURS, _TEMPERATURE = 40, 1 / 12
"""20 to 200 neighbours with 1/12 to 1/30 rank the dev splits tried alike: docs/decisions/models.md.
"""


class WordNeighboursFitting(Fitting):
    """Remembers the training documents by their `word_vectors`."""

    name = WORD_NEIGHBOURS

    def fit(self, on: FittedOn, settings: None, before: VectorMemory | None) -> VectorMemory | None:
        """Return the memory; None where there are no such vectors."""
        del settings, before
        if (words := on.models.get(WORD_VECTORS)) is None:
            return None
        return vector_memory(words.encode(on.features), on.truth, on.ids())


def vector_memory(
    vectors: ByteVectors,
    truth: Float32[csr_array, "document label"],
    ids: Sequence[str],
) -> VectorMemory:
    """Return a memory of the documents that have a label to lend.

    Args:
        vectors: The documents' vectors.
        truth: Ones where a document carries a label.
        ids: The documents' ids.
    """
    kept = np.flatnonzero(np.diff(truth.indptr)).astype(np.int64)
    clusters = None
    if len(kept) > EXACT_UP_TO:
        order, clusters = clustered(vectors.take(kept))
        kept = kept[order]
    return VectorMemory(
        vectors.take(kept),
        ordered(csr_array(truth[kept], dtype=np.float32)),
        tuple(ids[row] for row in kept.tolist()),
        _NUM_NEIGHBOURS,
        _TEMPERATURE,
        clusters,
    )


def clustered(vectors: ByteVectors) -> tuple[Int64[np.ndarray, row], Clusters]:
    """Return an order of very many vectors by cluster, and the clusters of the ordered vectors.

    The number of clusters searched is the smallest that was tried and finds `LEAST_RECALL` of the
    nearest vectors of a sample of the vectors.
    """
    rng = np.random.default_rng(0)
    num_clusters = int(4 * np.sqrt(vectors.num_rows))
    drawn = rng.choice(vectors.num_rows, min(vectors.num_rows, 32 * num_clusters), False)
    sample = vectors.take(np.sort(drawn))
    centroids = _centroids(sample.bytes * sample.scales[:, None], num_clusters)
    cluster_of = centroids.nearest(vectors, 1, num_threads=cpu_count()).documents[:, 0]
    order = np.argsort(cluster_of, kind="stable").astype(np.int64)
    sizes = np.bincount(cluster_of, minlength=centroids.num_rows)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    ordered_vectors = vectors.take(order)
    asked = ordered_vectors.take(
        np.sort(rng.choice(len(order), min(len(order), _NUM_ASKED), False))
    )
    k = min(_NUM_NEIGHBOURS, len(order))
    exact = ordered_vectors.nearest(asked, k, num_threads=cpu_count()).documents
    found = Clusters(centroids, starts, 8, 0.0)
    while found.num_probed < centroids.num_rows and found.recall < LEAST_RECALL:
        found = replace(found, num_probed=2 * found.num_probed)
        documents = found.nearest(ordered_vectors, asked, k, num_threads=cpu_count()).documents
        shares = [np.isin(*rows).mean() for rows in zip(exact, documents, strict=True)]
        found = replace(found, recall=float(np.mean(shares)))
    logger.info(
        "dense_neighbours: %d of %d clusters are looked at, with %.4f of the nearest %d documents",
        found.num_probed, centroids.num_rows, found.recall, k,
    )  # fmt: skip
    return order, found


def _centroids(vectors: Float32[np.ndarray, "row dim"], num_clusters: int) -> ByteVectors:
    """Return about `num_clusters` centres of k-means: of few large clusters, then within each.

    In one step the time grows with the number of clusters, in two with its root.
    """
    large = _k_means(vectors, math.isqrt(num_clusters))
    parts = (vectors[large.labels_ == number] for number in range(large.n_clusters))
    centres = [
        _k_means(part, max(1, round(num_clusters * len(part) / len(vectors)))).cluster_centers_
        for part in parts
        if len(part)
    ]
    return ByteVectors.rounded(np.concatenate(centres))


def _k_means(vectors: Float32[np.ndarray, "row dim"], num_clusters: int) -> MiniBatchKMeans:
    return MiniBatchKMeans(num_clusters, random_state=0, n_init=1, batch_size=8192).fit(vectors)
