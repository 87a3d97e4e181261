"""The training documents that a model remembers: their features, labels and ids."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.models.errors import BundleCorruptError
from longtail.models.files.durable import MANY_ELEMENTS
from longtail.models.files.typed_json import json_forms
from longtail.models.matrices import ArrayRule, HalfRows, check_arrays, stored_csr
from longtail.models.native.library import CSR, Csr

LEAST_TEMPERATURE = 0.01
"""With less, a neighbour's share could be too small for a number that is not 0."""
MAX_NEIGHBOURS = 10_000
LENT_RULES = {
    "labels": ArrayRule(("int32", "int64"), 1),
    "label_indptr": ArrayRule(("int32", "int64"), 1),
    "num_neighbours": ArrayRule(("int64",), 1, least=1, most=MAX_NEIGHBOURS),
    "temperature": ArrayRule(("float64",), 1, least=LEAST_TEMPERATURE),
}
"""Rules of the arrays of `Remembered.lent_to_arrays`."""
_RULES = {
    "data": ArrayRule(("float16",), 1, is_finite=False),
    "indices": ArrayRule(("int32",), 1),
    "indptr": ArrayRule(("int64",), 1),
    "posting_data": ArrayRule(("float16",), 1, is_finite=False),
    "posting_indices": ArrayRule(("int32",), 1),
    "posting_indptr": ArrayRule(("int64",), 1),
    **LENT_RULES,
}
"""The search is exact with such numbers alone."""
MAPPED = ("data", "indices", "posting_data", "posting_indices")
"""Arrays that stay in their file."""
_, _read_ids = json_forms(tuple[str, ...], max_elements=MANY_ELEMENTS)


class Remembered:
    """What all memories of documents have, however the nearest documents are found.

    Attributes:
        labels: Ones where a document carries a label.
        ids: Id of each document, as the corpus has it.
        num_neighbours: Documents that are asked about a text, at most.
        temperature: How much nearer documents count for more: exp(cosine / temperature).
    """

    labels: Float32[csr_array, "document label"]
    ids: tuple[str, ...]
    num_neighbours: int
    temperature: float

    @cached_property
    def carried_labels(self) -> Int64[np.ndarray, carried]:
        """Labels that a document carries, rising."""
        return np.unique(self.labels.indices).astype(np.int64)

    @cached_property
    def native_labels(self) -> Csr:
        """The labels as compiled loops take them."""
        return CSR(self.labels)

    @cached_property
    def nums_of_labels(self) -> Int64[np.ndarray, document_and_one]:
        """How many labels each document carries; behind the last one 0, for `NO_DOCUMENT`."""
        return np.append(np.diff(self.labels.indptr), 0).astype(np.int64)

    def ids_to_json(self) -> str:
        """Return the ids of the documents."""
        return json.dumps(self.ids)

    def lent_to_arrays(self) -> dict[str, np.ndarray]:
        """Return what documents lend, and how; the arrays of `LENT_RULES`."""
        return {
            "labels": self.labels.indices.astype(np.int32),
            "label_indptr": self.labels.indptr.astype(np.int64),
            "num_neighbours": np.array([self.num_neighbours], dtype=np.int64),
            "temperature": np.array([self.temperature], dtype=np.float64),
        }


@dataclass(frozen=True)
class NeighbourMemory(Remembered):
    """Documents that lend their labels to texts that are near to them (RAE-XMC, arXiv:2502.10615).

    Attributes:
        documents: Tf-idf of each document, by feature.
        postings: The same, transposed: the documents of each feature.
        labels: Ones where a document carries a label.
        ids: Id of each document, as the corpus has it.
        num_neighbours: Documents that are asked about a text, at most; at least 1.
        temperature: How much nearer documents count for more: exp(cosine / temperature); at least
            `LEAST_TEMPERATURE`.
    """

    documents: HalfRows
    postings: HalfRows
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
        is_all = len(kept) == features.shape[0]
        documents = HalfRows.rounded(features if is_all else csr_array(features[kept]))
        return cls(
            documents=documents,
            postings=documents.transposed(),
            labels=ordered(csr_array(labels[kept], dtype=np.float32)),
            ids=tuple(ids[row] for row in kept.tolist()),
            num_neighbours=num_neighbours,
            temperature=temperature,
        )

    @cached_property
    def largest_values(self) -> Float32[np.ndarray, feature]:
        """The largest value of each feature in any document; 0 where none has it."""
        return self.postings.largest_of_rows()

    @cached_property
    def longest_norm(self) -> float:
        """The length of the longest row: close to 1, since features are rounded."""
        return self.documents.longest_norm()

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return all but the ids."""
        return {
            **_arrays_of(self.documents, ""),
            **_arrays_of(self.postings, "posting_"),
            **self.lent_to_arrays(),
        }

    @classmethod
    def from_arrays(
        cls, arrays: dict[str, np.ndarray], ids: str, num_features: int, num_labels: int
    ) -> NeighbourMemory:
        """Read what `to_arrays` and `ids_to_json` wrote."""
        check_arrays(arrays, _RULES)
        num_documents = len(arrays["indptr"]) - 1
        found = read_ids(ids, num_documents)
        documents = _stored(arrays, "", (num_documents, num_features))
        postings = _stored(arrays, "posting_", (num_features, num_documents))
        labels = stored_labels(arrays, (num_documents, num_labels))
        return cls(
            documents,
            postings,
            labels,
            found,
            int(arrays["num_neighbours"].item()),
            float(arrays["temperature"].item()),
        )


def read_ids(text: str, num_documents: int) -> tuple[str, ...]:
    """Return the ids of documents from their JSON list."""
    found: tuple[str, ...] = _read_ids(text)
    if len(found) != num_documents:
        raise BundleCorruptError(
            f"ids of documents: got {len(found)} entries, expected {num_documents}"
        )
    return found


def stored_labels(
    arrays: Mapping[str, np.ndarray], shape: tuple[int, int]
) -> Float32[csr_array, "document label"]:
    """Return the labels of documents, from the arrays `labels` and `label_indptr`."""
    ones = np.ones(len(arrays["labels"]), dtype=np.float32)
    names = ("labels", "label_indptr")
    return stored_csr(ones, arrays[names[0]], arrays[names[1]], shape, names)


def _arrays_of(rows: HalfRows, prefix: str) -> dict[str, np.ndarray]:
    indices, indptr = rows.indices.astype(np.int32), rows.indptr.astype(np.int64)
    return {f"{prefix}data": rows.data, f"{prefix}indices": indices, f"{prefix}indptr": indptr}


def _stored(arrays: dict[str, np.ndarray], prefix: str, shape: tuple[int, int]) -> HalfRows:
    data, indices, indptr = (arrays[prefix + name] for name in ("data", "indices", "indptr"))
    return HalfRows.stored(data, indices, indptr, shape)


def ordered(matrix: csr_array) -> csr_array:
    """Return a matrix whose columns rise in each row, each once; it is changed in place."""
    matrix.sum_duplicates()  # sorts, too
    return matrix
