"""Documents remembered by their vectors, in bytes, and the nearest of them: calls of `dense.c`.

A component is a whole number from -127 to 127 times a scale of its vector: a cosine is off by some
0.0007, and a sum of products is the same on every processor and in every batch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Int8, Int64
from scipy.sparse import csr_array

from longtail.models.matrices import ArrayRule, check_arrays
from longtail.models.memory.memory import (
    LEAST_TEMPERATURE,
    MAX_NEIGHBOURS,
    read_ids,
    stored_labels,
)
from longtail.models.memory.search import Neighbours
from longtail.models.native.library import F32, I8, I64, INT, RecordOf, function
from longtail.models.ranking.row_threads import in_row_parts

_MOST = 127
MAX_DIM = 2**16
"""Dimensions of a vector, so that a sum of products fits 32 bits."""
_FEWEST_TOGETHER, _MOST_TOGETHER = 4, 64
"""Queries that a thread takes: each vector is read once for all of them."""
_ROWS = RecordOf(bytes=I8, scales=F32, num_rows=INT, dim=INT)
_nearest = function("dense_nearest", _ROWS, _ROWS, INT, I64, F32)
_RULES = {
    "bytes": ArrayRule(("int8",), 2),
    "scales": ArrayRule(("float32",), 1, least=0, most=1),
    "labels": ArrayRule(("int32",), 1),
    "label_indptr": ArrayRule(("int64",), 1),
    "num_neighbours": ArrayRule(("int64",), 1, least=1, most=MAX_NEIGHBOURS),
    "temperature": ArrayRule(("float64",), 1, least=LEAST_TEMPERATURE),
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
            queries: Of as many dimensions.
            k: At least 1.
            num_threads: Number of threads, where there are many queries.
        """
        rows, num_queries = _ROWS(self), queries.num_rows
        found = Neighbours(
            np.empty((num_queries, k), dtype=np.int64),
            np.empty((num_queries, k), dtype=np.float32),
        )

        def search(part: slice) -> None:
            out = found.documents[part], found.similarities[part]
            _nearest(_ROWS(queries.take(part)), rows, k, *out)

        size = max(_FEWEST_TOGETHER, min(_MOST_TOGETHER, -(-num_queries // max(1, num_threads))))
        in_row_parts(search, num_queries, num_threads, size)
        return found


@dataclass(frozen=True)
class VectorMemory:
    """Documents that lend their labels to texts whose vectors are near to theirs.

    As `longtail.models.memory.memory.NeighbourMemory` (RAE-XMC, arXiv:2502.10615), by the vectors
    of an encoder in the place of tf-idf.

    Attributes:
        vectors: Of each document.
        labels: Ones where a document carries a label.
        ids: Of each document, as the corpus has it.
        num_neighbours: Documents that lend their labels to a text, at most; at least 1.
        temperature: How much nearer documents count for more: exp(cosine / temperature).
    """

    vectors: ByteVectors
    labels: Float32[csr_array, "document label"]
    ids: tuple[str, ...]
    num_neighbours: int
    temperature: float

    @cached_property
    def carried_labels(self) -> Int64[np.ndarray, carried]:
        """Labels that a document carries, rising."""
        return np.unique(self.labels.indices).astype(np.int64)

    def ids_to_json(self) -> str:
        """Return the ids of the documents."""
        return json.dumps(self.ids)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return all but the ids."""
        return {
            "bytes": self.vectors.bytes,
            "scales": self.vectors.scales,
            "labels": self.labels.indices.astype(np.int32),
            "label_indptr": self.labels.indptr.astype(np.int64),
            "num_neighbours": np.array([self.num_neighbours], dtype=np.int64),
            "temperature": np.array([self.temperature], dtype=np.float64),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], ids: str, num_labels: int) -> VectorMemory:
        """Read what `to_arrays` and `ids_to_json` wrote.

        Args:
            arrays: By name.
            ids: A JSON list.
            num_labels: Labels of the catalogue.

        Raises:
            BundleCorruptError: There are more or fewer ids than documents.
            ValueError: An array breaks its rule or is no index into another, or the ids are no
                texts.
        """
        check_arrays(arrays, _RULES)
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
        )
