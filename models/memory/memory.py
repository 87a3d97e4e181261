"""The training documents that a model remembers: their features, labels and ids."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.models.errors import BundleCorruptError
from longtail.models.files.json_text import parse_own_json
from longtail.models.matrices import ArrayRule, check_arrays, stored_csr, transposed

LEAST_TEMPERATURE = 0.01
"""With less, a neighbour's share could be too small for a number that is not 0."""
_MAX_NEIGHBOURS = 10_000
_RULES = {
    "data": ArrayRule(("float16", "float32"), 1, least=0),
    "indices": ArrayRule(("int32", "int64"), 1),
    "indptr": ArrayRule(("int32", "int64"), 1),
    "labels": ArrayRule(("int32", "int64"), 1),
    "label_indptr": ArrayRule(("int32", "int64"), 1),
    "num_neighbours": ArrayRule(("int64",), 1, least=1, most=_MAX_NEIGHBOURS),
    "temperature": ArrayRule(("float64",), 1, least=LEAST_TEMPERATURE),
}
"""The search is exact with such numbers alone."""
_NORMED_ROWS = 4096
"""In one go: norms are of float64, and all at once would take more memory than the documents."""


@dataclass(frozen=True)
class NeighbourMemory:
    """Documents that lend their labels to texts that are near to them (RAE-XMC, arXiv:2502.10615).

    Attributes:
        documents: Tf-idf of each document; no value is below 0.
        labels: Ones where a document carries a label.
        ids: Of each document, as the corpus has it.
        num_neighbours: Documents that are asked about a text, at most; at least 1.
        temperature: How much nearer documents count for more: exp(cosine / temperature); at least
            `LEAST_TEMPERATURE`.
    """

    documents: Float32[csr_array, "document feature"]
    labels: Float32[csr_array, "document label"]
    ids: tuple[str, ...]
    num_neighbours: int
    temperature: float

    @classmethod
    def of_documents(
        cls,
        features: Float32[csr_array, "document feature"],
        labels: Float32[csr_array, "document label"],
        ids: Sequence[str],
        *,
        num_neighbours: int,
        temperature: float,
    ) -> NeighbourMemory:
        """Return a memory of documents, with features in half precision, in which they are stored.

        Documents without labels are left out: they have none to lend.
        """
        kept = np.flatnonzero(np.diff(labels.indptr))
        return cls(
            documents=_in_halves(csr_array(features[kept])),
            labels=_ordered(csr_array(labels[kept], dtype=np.float32)),
            ids=tuple(ids[row] for row in kept.tolist()),
            num_neighbours=num_neighbours,
            temperature=temperature,
        )

    @cached_property
    def postings(self) -> Float32[csr_array, "feature document"]:
        """The documents of each feature: the features transposed."""
        return transposed(self.documents)

    @cached_property
    def largest_values(self) -> Float32[np.ndarray, feature]:
        """Of each feature in any document; 0 where none has it."""
        largest = np.zeros(self.documents.shape[1], dtype=np.float32)
        np.maximum.at(largest, self.documents.indices, self.documents.data)
        return largest

    @cached_property
    def longest_norm(self) -> float:
        """Of all documents: close to 1, since features are rounded."""
        largest = 0.0
        for start in range(0, self.documents.shape[0], _NORMED_ROWS):
            part = csr_array(self.documents[start : start + _NORMED_ROWS], dtype=np.float64)
            largest = max(largest, float(part.power(2).sum(axis=1).max(initial=0)))
        return math.sqrt(largest)

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
            "data": self.documents.data,
            "indices": self.documents.indices.astype(np.int32),
            "indptr": self.documents.indptr.astype(np.int64),
            "labels": self.labels.indices.astype(np.int32),
            "label_indptr": self.labels.indptr.astype(np.int64),
            "num_neighbours": np.array([self.num_neighbours], dtype=np.int64),
            "temperature": np.array([self.temperature], dtype=np.float64),
        }

    @classmethod
    def from_arrays(
        cls, arrays: dict[str, np.ndarray], ids: str, num_features: int, num_labels: int
    ) -> NeighbourMemory:
        """Read what `to_arrays` and `ids_to_json` wrote.

        Args:
            arrays: By name.
            ids: A JSON list.
            num_features: Of the vocabulary.
            num_labels: Of the catalogue.

        Raises:
            BundleCorruptError: They contradict each other, the vocabulary or the catalogue.
            ValueError: An array breaks its rule or is no index into another, or the ids are no
                JSON.
        """
        check_arrays(arrays, _RULES)
        found = parse_own_json(ids)
        num_documents = len(arrays["indptr"]) - 1
        _check_ids(found, num_documents)
        documents = stored_csr(
            arrays["data"].astype(np.float32, copy=False),
            arrays["indices"],
            arrays["indptr"],
            (num_documents, num_features),
        )
        ones = np.ones(len(arrays["labels"]), dtype=np.float32)
        labels = stored_csr(
            ones,
            arrays["labels"],
            arrays["label_indptr"],
            (num_documents, num_labels),
            ("labels", "label_indptr"),
        )
        return cls(
            documents,
            labels,
            tuple(found),
            int(arrays["num_neighbours"].item()),
            float(arrays["temperature"].item()),
        )


def _check_ids(ids: object, num_documents: int) -> None:
    is_list = isinstance(ids, list) and all(isinstance(each, str) for each in ids)
    if not isinstance(ids, list) or not is_list or len(ids) != num_documents:
        what = f"{len(ids)} entries" if isinstance(ids, list) else repr(ids)[:40]
        raise BundleCorruptError(
            f"ids of documents: got {what}, expected a list of {num_documents} texts"
        )


def _in_halves(
    features: Float32[csr_array, "document feature"],
) -> Float32[csr_array, "document feature"]:
    """Return features rounded to half precision, in rows whose columns rise."""
    rounded = csr_array(features, copy=True)
    rounded.data = rounded.data.astype(np.float16).astype(np.float32)
    rounded.eliminate_zeros()
    return _ordered(rounded)


def _ordered(matrix: csr_array) -> csr_array:
    matrix.sum_duplicates()  # sorts, too
    return matrix
