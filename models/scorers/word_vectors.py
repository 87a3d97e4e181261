"""A dual encoder whose encoder is a sum: a text, or the names of a label, as vectors of its words.

With the tf-idf x_w of a text and n_w of the names of a label, a vector e_w of each word, and a
vector f_y of each label that training documents carry (StarSpace, Wu et al. 2018; Astec, Dahiya et
al. 2021):

    v(x) = unit(sum_w x_w e_w)      u(y) = unit(unit(sum_w n_w e_w) + f_y)      score = <v(x), u(y)>

As in DEPL (Eq. 1-3), both sides share their encoder. Vectors are stored in bytes, so that a score
is a sum of whole numbers: the same on every processor and in every batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from scipy.sparse import csr_array

from longtail.models.labels.catalogue import Label
from longtail.models.matrices import ArrayRule, check_arrays
from longtail.models.memory.vectors import ByteVectors
from longtail.models.ranking.top_k import NO_LABEL, Ranking, row_parts, top_of_scores
from longtail.models.scorers.tfidf import TfidfModel

if TYPE_CHECKING:  # brings PyTorch
    from longtail.models.memory.device_vectors import DeviceVectors

_BLOCK_NUMBERS = 2**22
"""Numbers that are held at a time, as float32: 16 MiB."""
EXACT_DIM = 2**24 // 128**2
"""Dimensions of a vector, so that float32 holds every sum of products of bytes."""
_PARTS = ("words", "labels", "names")
_RULES = {
    f"{part}_{name}": rule
    for part in _PARTS
    for name, rule in (
        ("bytes", ArrayRule(("int8",), 2)),
        ("scales", ArrayRule(("float32",), 1, least=0)),
    )
}
MAPPED = tuple(f"{part}_bytes" for part in _PARTS)
"""Arrays that stay in their file."""


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Vectors of words and labels.

    Attributes:
        words: e_w of each feature of the sparse model.
        labels: u of each label; zeros where neither a document nor a known word of a name is there.
        names: unit(sum_w n_w e_w) of each label: what u is without training documents.
        tfidf: The features of texts and of names.
    """

    words: ByteVectors
    labels: ByteVectors
    names: ByteVectors
    tfidf: TfidfModel

    def encode(self, features: Float32[csr_array, "text feature"]) -> ByteVectors:
        """Return v of texts; zeros for a text without a known word."""
        parts = row_parts(features.shape[0], self.words.dim * 64, _BLOCK_NUMBERS)
        return ByteVectors.joined([self._encode(features[part]) for part in parts])

    def _encode(self, features: Float32[csr_array, "text feature"]) -> ByteVectors:
        words = self.words.take(features.indices)
        weights = features.data * words.scales
        places = np.arange(len(weights))  # each element has a row of its own, in the order of texts
        summed = csr_array((weights, places, features.indptr), (features.shape[0], len(weights)))
        return ByteVectors.rounded(summed @ words.bytes.astype(np.float32))

    def with_labels(self, labels: Sequence[Label]) -> WordVectors:
        """Return a model that knows more labels, by their names."""
        names = self.encode(self.tfidf.transform(map(names_of, labels)))
        return replace(
            self,
            labels=ByteVectors.joined([self.labels, names]),
            names=ByteVectors.joined([self.names, names]),
        )

    def without_documents(self, is_unseen: Bool[np.ndarray, label]) -> WordVectors:
        """Return a model as if no document had carried some labels."""
        of_names, of_labels = self.names, self.labels
        labels = ByteVectors(
            np.where(is_unseen[:, None], of_names.bytes, of_labels.bytes),
            np.where(is_unseen, of_names.scales, of_labels.scales),
        )
        return replace(self, labels=labels)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return all vectors."""
        found: dict[str, np.ndarray] = {}
        for name in _PARTS:
            vectors: ByteVectors = getattr(self, name)
            found |= {f"{name}_bytes": vectors.bytes, f"{name}_scales": vectors.scales}
        return found

    @classmethod
    def from_arrays(
        cls, arrays: dict[str, np.ndarray], tfidf: TfidfModel, num_labels: int
    ) -> WordVectors:
        """Read what `to_arrays` returned."""
        check_arrays(arrays, _RULES)
        parts = [ByteVectors(arrays[f"{x}_bytes"], arrays[f"{x}_scales"]) for x in _PARTS]
        rows, dim = (len(tfidf.tokens), num_labels, num_labels), parts[0].dim
        for name, part, expected in zip(_PARTS, parts, rows, strict=True):
            shape = (part.num_rows, len(part.scales), part.dim)
            if shape != (expected, expected, dim) or dim > EXACT_DIM:
                raise ValueError(
                    f"{name} has {shape[0]} rows and {shape[1]} scales of {shape[2]} columns; "
                    f"expected {expected} of {dim}, at most {EXACT_DIM}"
                )
        words, labels, names = parts
        return cls(words, labels, names, tfidf)


def names_of(label: Label) -> str:
    """Return the names of a label as one text."""
    return " . ".join((label.name, *label.alternative_names))


class CosineSource:
    """The `Source` of one batch of texts over label vectors."""

    def __init__(
        self,
        queries: ByteVectors,
        vectors: ByteVectors,
        labels: Int64[np.ndarray, covered],
        raised: Float64[np.ndarray, covered] | None = None,
        num_threads: int = 1,
        on_device: DeviceVectors | None = None,
    ) -> None:
        """Bind the texts to the vectors.

        Args:
            queries: Vectors of the texts.
            vectors: Vectors of labels.
            labels: The label of each vector, rising.
            raised: Added to the score of each label; None: nothing.
            num_threads: That search for many texts at the same time.
            on_device: The vectors on a GPU, which searches them instead.
        """
        self._queries, self._vectors, self.labels = queries, vectors, labels
        self._raised, self._num_threads, self._on_device = raised, num_threads, on_device

    @property
    def num_queries(self) -> int:
        """Texts of the batch."""
        return self._queries.num_rows

    @property
    def num_labels(self) -> int:
        """Labels with a vector; 1 where there are none."""
        return max(1, len(self.labels))

    def top(self, rows: Int64[np.ndarray, row], m: int) -> Ranking:
        """Return the m best labels of these texts (see `Source.top`)."""
        if self._raised is None and 0 < m < len(self.labels):
            asked = self._queries.take(rows)
            if self._on_device is not None:
                found = self._on_device.nearest(asked, m)
            else:
                found = self._vectors.nearest(asked, m, num_threads=self._num_threads)
            return Ranking(self.labels[found.documents], found.similarities)
        places = np.broadcast_to(np.arange(len(self.labels)), (len(rows), len(self.labels)))
        best = top_of_scores(self._scores(rows, places), m)
        labels = np.append(self.labels, NO_LABEL)[best.labels]  # NO_LABEL is the last place, too
        return Ranking(labels, best.scores)

    def score(
        self, rows: Int64[np.ndarray, row], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the scores of given labels (see `Source.score`)."""
        if not len(self.labels):
            return np.full(labels.shape, -np.inf, dtype=np.float32)
        places = np.minimum(np.searchsorted(self.labels, labels), len(self.labels) - 1)
        scores = self._scores(rows, places)
        return np.where(self.labels[places] == labels, scores, np.float32(-np.inf))

    def _scores(
        self, rows: Int64[np.ndarray, row], places: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the scores of the vectors at some places.

        Sums of products of bytes are whole numbers below 2^24, which float32 adds up exactly.
        """
        asked, scores = self._queries.take(rows), np.empty(places.shape, dtype=np.float32)
        for row, at in enumerate(places):
            vectors = self._vectors.take(at)
            sums = vectors.bytes.astype(np.float32) @ asked.bytes[row].astype(np.float32)
            products = float(asked.scales[row]) * vectors.scales.astype(np.float64) * sums
            scores[row] = products if self._raised is None else products + self._raised[at]
        return scores
