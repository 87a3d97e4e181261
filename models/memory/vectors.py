"""Documents remembered by their vectors, in bytes, and the nearest of them: calls of `dense.c`.

A component is a whole number from -127 to 127 times a scale of its vector: a cosine is off by some
0.0007, and a sum of products is the same on every processor and in every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int8, Int64
from scipy.sparse import csr_array

from longtail.models.matrices import ArrayRule, check_arrays
from longtail.models.memory.memory import LENT_RULES, Remembered, read_ids, stored_labels
from longtail.models.memory.search import Neighbours
from longtail.models.native.library import F32, I8, I64, INT, RecordOf, function
from longtail.models.ranking.top_k import in_row_parts

_MOST = 127
MAX_DIM = 2**16
"""Dimensions of a vector, so that a sum of products fits 32 bits."""
_FEWEST_TOGETHER, _MOST_TOGETHER = 4, 64
"""Queries that a thread takes: each vector is read once for all of them."""
_ROWS = RecordOf(
    "byte_rows", bytes=I8["num_rows dim"], scales=F32["num_rows"], num_rows=INT, dim=INT
)
_nearest = function(
    "dense_nearest", queries=_ROWS, rows=_ROWS, k=INT, found=I64.out["queries.num_rows k"],
    similarities=F32.out["queries.num_rows k"],
)  # fmt: skip
_nearest_probed = function(
    "dense_nearest_probed", queries=_ROWS, rows=_ROWS, starts=I64["num_clusters+1"],
    num_clusters=INT, probed=I64["queries.num_rows num_probed"], num_probed=INT, k=INT,
    found=I64.out["queries.num_rows k"], similarities=F32.out["queries.num_rows k"],
)  # fmt: skip
_RULES = {
    "bytes": ArrayRule(("int8",), 2),
    "scales": ArrayRule(("float32",), 1, least=0, most=1),
    **LENT_RULES,
}
_CLUSTER_RULES = {
    "centroid_bytes": ArrayRule(("int8",), 2),
    "centroid_scales": ArrayRule(("float32",), 1, least=0, most=1),
    "starts": ArrayRule(("int64",), 1, least=0),
    "num_probed": ArrayRule(("int64",), 1, least=1),
    "recall": ArrayRule(("float64",), 1, least=0, most=1),
}
MAPPED = ("bytes",)
"""Arrays that stay in their file."""


@dataclass(frozen=True, eq=False)
class ByteVectors:
    """Vectors of length 1, in bytes.

    Attributes:
        bytes: Their components, rounded.
        scales: Factor of the components of each.
    """

    bytes: Int8[np.ndarray, "row dim"]
    scales: Float32[np.ndarray, row]

    @classmethod
    def rounded(cls, vectors: Float32[np.ndarray, "row dim"]) -> ByteVectors:
        """Return the directions of vectors; a vector of zeros has the cosine 0 with all others."""
        norms = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
        units = vectors / np.where(norms > 0, norms, 1)
        scales = np.abs(units).max(axis=1, initial=0) / _MOST
        found = np.rint(units / np.where(scales > 0, scales, 1)[:, None])
        return cls(found.astype(np.int8), scales.astype(np.float32))

    @property
    def num_rows(self) -> int:
        """Number of vectors."""
        return int(self.bytes.shape[0])

    @property
    def dim(self) -> int:
        """Components of a vector."""
        return int(self.bytes.shape[1])

    def take(self, rows: Sequence[int] | Int64[np.ndarray, some] | slice) -> ByteVectors:
        """Return some of them."""
        return ByteVectors(self.bytes[rows], self.scales[rows])

    @classmethod
    def joined(cls, parts: Sequence[ByteVectors]) -> ByteVectors:
        """Return the vectors of several parts, in their order."""
        return cls(
            np.concatenate([part.bytes for part in parts]),
            np.concatenate([part.scales for part in parts]),
        )

    def nearest(self, queries: ByteVectors, k: int, *, num_threads: int = 1) -> Neighbours:
        """Return the vectors of largest cosine with each query, exactly; ties by smaller number.

        Args:
            queries: Vectors with the same number of dimensions.
            k: At least 1.
            num_threads: Number of threads, where there are many queries.
        """
        rows = _ROWS(self)

        def search(
            some: ByteVectors, part: slice, documents: np.ndarray, similarities: np.ndarray
        ) -> None:
            del part
            _nearest(_ROWS(some), rows, k, documents, similarities)

        return _in_parts(search, queries, k, num_threads, most=_MOST_TOGETHER)


def _in_parts(
    search: Callable[[ByteVectors, slice, np.ndarray, np.ndarray], None],
    queries: ByteVectors,
    k: int,
    num_threads: int,
    most: int,
) -> Neighbours:
    """Return what a search writes for parts of at most `most` queries."""
    num_queries = queries.num_rows
    found = Neighbours(
        np.empty((num_queries, k), dtype=np.int64), np.empty((num_queries, k), dtype=np.float32)
    )

    def search_part(part: slice) -> None:
        search(queries.take(part), part, found.documents[part], found.similarities[part])

    size = max(_FEWEST_TOGETHER, min(most, -(-num_queries // max(1, num_threads))))
    in_row_parts(search_part, num_queries, num_threads, size)
    return found


@dataclass(frozen=True, eq=False)
class Clusters:
    """Parts of very many vectors, of which those near to a query are looked at.

    Attributes:
        centroids: Direction of each cluster.
        starts: First vector of each cluster, and where the last one ends.
        num_probed: Clusters that are looked at for a query.
        recall: Share of the nearest vectors that are found so, measured at training.
    """

    centroids: ByteVectors
    starts: Int64[np.ndarray, start]
    num_probed: int
    recall: float

    def nearest(
        self, vectors: ByteVectors, queries: ByteVectors, k: int, *, num_threads: int = 1
    ) -> Neighbours:
        """Return the nearest vectors of the nearest clusters (see `ByteVectors.nearest`)."""
        num_probed = min(self.num_probed, self.centroids.num_rows)
        probed = self.centroids.nearest(queries, num_probed, num_threads=num_threads).documents
        rows, num_clusters = _ROWS(vectors), self.centroids.num_rows

        def search(
            some: ByteVectors, part: slice, documents: np.ndarray, similarities: np.ndarray
        ) -> None:
            _nearest_probed(
                _ROWS(some), rows, self.starts, num_clusters, probed[part], num_probed, k,
                documents, similarities,
            )  # fmt: skip

        return _in_parts(search, queries, k, num_threads, most=_FEWEST_TOGETHER)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return all that is stored."""
        return {
            "centroid_bytes": self.centroids.bytes,
            "centroid_scales": self.centroids.scales,
            "starts": self.starts,
            "num_probed": np.array([self.num_probed], dtype=np.int64),
            "recall": np.array([self.recall], dtype=np.float64),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], vectors: ByteVectors) -> Clusters:
        """Read what `to_arrays` returned."""
        check_arrays(arrays, _CLUSTER_RULES)
        centroids = ByteVectors(arrays["centroid_bytes"], arrays["centroid_scales"])
        starts, sizes = arrays["starts"], (len(arrays["starts"]) - 1, centroids.num_rows)
        ends = [*starts[:1].tolist(), *starts[-1:].tolist()]
        is_whole = bool((np.diff(starts) >= 0).all()) and ends == [0, vectors.num_rows]
        if not is_whole or {*sizes} != {len(centroids.scales)} or centroids.dim != vectors.dim:
            raise ValueError(
                f"starts do not divide {vectors.num_rows} vectors of {vectors.dim} numbers among "
                f"{centroids.num_rows} clusters"
            )
        num_probed, recall = int(arrays["num_probed"].item()), float(arrays["recall"].item())
        return cls(centroids, starts, num_probed, recall)


@dataclass(frozen=True)
class VectorMemory(Remembered):
    """Documents that lend their labels to texts whose vectors are near to theirs.

    As `longtail.models.memory.memory.NeighbourMemory` (RAE-XMC, arXiv:2502.10615), by the vectors
    of an encoder in the place of tf-idf.

    Attributes:
        vectors: Vector of each document.
        labels: Ones where a document carries a label.
        ids: Id of each document, as the corpus has it.
        num_neighbours: Documents that lend their labels to a text, at most; at least 1.
        temperature: How much nearer documents count for more: exp(cosine / temperature).
        clusters: Parts of the documents; None: all are looked at.
    """

    vectors: ByteVectors
    labels: Float32[csr_array, "document label"]
    ids: tuple[str, ...]
    num_neighbours: int
    temperature: float
    clusters: Clusters | None = None

    def nearest(self, queries: ByteVectors, *, num_threads: int = 1) -> Neighbours:
        """Return the documents that lend their labels to texts, nearest first."""
        k = self.num_neighbours
        if self.clusters is None:
            return self.vectors.nearest(queries, k, num_threads=num_threads)
        return self.clusters.nearest(self.vectors, queries, k, num_threads=num_threads)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return all but the ids."""
        return {
            "bytes": self.vectors.bytes,
            "scales": self.vectors.scales,
            **self.lent_to_arrays(),
            **({} if self.clusters is None else self.clusters.to_arrays()),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], ids: str, num_labels: int) -> VectorMemory:
        """Read what `to_arrays` and `ids_to_json` wrote."""
        of_clusters = {name: x for name, x in arrays.items() if name in _CLUSTER_RULES}
        check_arrays({name: x for name, x in arrays.items() if name not in of_clusters}, _RULES)
        vectors = ByteVectors(arrays["bytes"], arrays["scales"])
        if len(vectors.scales) != vectors.num_rows or vectors.dim > MAX_DIM:
            raise ValueError(
                f"bytes has the shape {vectors.bytes.shape}, expected {len(vectors.scales)} rows "
                f"(those of scales) of at most {MAX_DIM} columns"
            )
        return cls(
            vectors,
            stored_labels(arrays, (vectors.num_rows, num_labels)),
            read_ids(ids, vectors.num_rows),
            int(arrays["num_neighbours"].item()),
            float(arrays["temperature"].item()),
            Clusters.from_arrays(of_clusters, vectors) if of_clusters else None,
        )
