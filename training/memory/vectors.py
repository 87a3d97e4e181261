"""The training documents that a model remembers by the vectors of its encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import TypeAlias

import numpy as np
from jaxtyping import Float32
from scipy.sparse import csr_array

from longtail.models.memory.memory import ordered
from longtail.models.memory.vectors import ByteVectors, VectorMemory

Encode: TypeAlias = Callable[[list[str]], Float32[np.ndarray, "text dim"]]
"""Returns the vectors of texts."""
_NUM_NEIGHBOURS, _TEMPERATURE = 40, 1 / 12
"""20 to 200 neighbours with 1/12 to 1/30 rank the dev splits tried alike: docs/decisions/models.md.
"""


def vector_memory(
    vectors: ByteVectors, truth: Float32[csr_array, "document label"], ids: Sequence[str]
) -> VectorMemory:
    """Return a memory of documents, without those that have no label to lend.

    Args:
        vectors: Of the documents.
        truth: Ones where a document carries a label.
        ids: Of the documents.
    """
    kept = np.flatnonzero(np.diff(truth.indptr)).astype(np.int64)
    return VectorMemory(
        vectors.take(kept),
        ordered(csr_array(truth[kept], dtype=np.float32)),
        tuple(ids[row] for row in kept.tolist()),
        _NUM_NEIGHBOURS,
        _TEMPERATURE,
    )


def with_documents(
    before: VectorMemory,
    ids: Sequence[str],
    texts: Iterable[str],
    truth: Float32[csr_array, "document label"],
    encode: Encode,
) -> VectorMemory:
    """Return a memory of other documents; those that are remembered are not encoded again.

    Args:
        before: Documents by vectors of the same encoder; the texts of its ids are as they were.
        ids: Of all documents.
        texts: Their texts, each looked at once.
        truth: Ones where a document carries a label.
        encode: Returns vectors of texts.
    """
    row_of = {document: row for row, document in enumerate(before.ids)}
    is_new = [document not in row_of for document in ids] & (np.diff(truth.indptr) > 0)
    new = np.flatnonzero(is_new)
    rows = np.array([row_of.get(document, 0) for document in ids], dtype=np.int64)
    vectors = before.vectors
    if len(new):
        encoded = ByteVectors.rounded(encode(list(compress(texts, is_new.tolist()))))
        rows[new] = vectors.num_rows + np.arange(len(new))
        vectors = ByteVectors.joined([vectors, encoded])
    return vector_memory(vectors.take(rows), truth, ids)
