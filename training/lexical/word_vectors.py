"""Vectors of words and labels, trained on the corpus (see `longtail.models.scorers.word_vectors`).

A step takes some documents. The loss of a document x with the labels Y is the decoupled softmax
(Gupta et al. 2024) over the labels of all documents of the step, and others that are drawn with
probability proportional to the root of their number of documents; y' are those not in Y:

    1/|Y| sum_{y in Y} log(1 + sum_y' exp(s <v(x), u(y')> - s <v(x), u(y)>))

Gradients are written out, so that it needs NumPy and SciPy alone. Only rows that a step reads are
updated, by Adam (Kingma & Ba 2015) without momentum and with one second moment a row.
"""

from __future__ import annotations

import logging
from typing import Annotated

import numpy as np
from jaxtyping import Float32, Int64
from pydantic import BaseModel, ConfigDict, Field
from scipy.sparse import csr_array, vstack

from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.memory.vectors import ByteVectors
from longtail.models.names import WORD_VECTORS
from longtail.models.scorers.tfidf import TfidfModel
from longtail.models.scorers.word_vectors import EXACT_DIM, WordVectors, names_of
from longtail.training.fitting import FittedOn, Fitting
from longtail.training.runtime.run_log import progress_bar

logger = logging.getLogger(__name__)

_SCALE = 16.0
"""s: the temperature of the softmax is 1/s."""
_RATE, _DECAY, _TINY = 3e-3, 0.999, 1e-8
_NUM_DRAWN = 1000
"""Labels drawn in a step; of no more labels than this, all are taken."""
_EPOCHS_AGAIN = 1
"""Passes over all documents, where the vectors before are those of most of them."""
_LEAST_STEPS, _FEWEST, _MOST = 200, 32, 256
"""Steps of an epoch, where documents are few, and documents of a step."""
_OWN_LENGTH = np.float32(0.1)
"""Length of f_y at the start, so that a label without a known word in its names has a direction."""
_BLOCK = 4096


class WordVectorsSettings(BaseModel):
    """How the vectors are trained."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dim: Annotated[int, Field(ge=8, le=EXACT_DIM)] = 128
    epochs: Annotated[int, Field(ge=1, le=100)] = 4


class WordVectorsFitting(Fitting):
    """Trains the vectors on all documents."""

    name = WORD_VECTORS
    settings = WordVectorsSettings

    def fit(
        self, on: FittedOn, settings: WordVectorsSettings, before: WordVectors | None
    ) -> WordVectors | None:
        """Return the vectors, or those before trained further; None where no document has a label.

        What a part of the documents taught needs fewer passes over all of them.
        """
        if not on.truth.nnz:
            return None
        if before is not None:
            settings = settings.model_copy(update={"epochs": min(settings.epochs, _EPOCHS_AGAIN)})
        tfidf = on.sparse.tfidf
        return fit_word_vectors(
            on.features, on.truth, on.catalogue, tfidf, settings, on.seed, start=before
        )


def fit_word_vectors(
    features: Float32[csr_array, "document feature"],
    truth: Float32[csr_array, "document label"],
    catalogue: LabelCatalogue,
    tfidf: TfidfModel,
    settings: WordVectorsSettings,
    seed: int,
    *,
    start: WordVectors | None = None,
) -> WordVectors:
    """Return vectors trained by `settings.epochs` passes over the documents.

    Args:
        features: Tf-idf of the documents.
        truth: Ones where a document carries a label.
        catalogue: The labels with their names.
        tfidf: Tf-idf model of the features.
        settings: Dimensions and epochs.
        seed: Seed of the first vectors, the order of documents and the labels that are drawn.
        start: Vectors of the same labels to begin with; None: random ones.
    """
    rng = np.random.default_rng(seed)
    names = csr_array(tfidf.transform(map(names_of, catalogue)))
    training = _Training(features, truth, names, settings.dim, rng)
    if start is not None and start.words.dim == settings.dim:
        training.begin_with(start, tfidf)
    labelled = np.flatnonzero(np.diff(truth.indptr))
    size = int(np.clip(len(labelled) // _LEAST_STEPS, _FEWEST, _MOST))
    total = settings.epochs * len(labelled)
    with progress_bar(total=total, desc=WORD_VECTORS, unit="document") as bar:
        for epoch in range(settings.epochs):
            order, loss = rng.permutation(labelled), 0.0
            for first in range(0, len(order), size):
                some = order[first : first + size]
                loss += training.step(some) * len(some)
                bar.update(len(some))
            logger.info("%s: epoch %d, loss %.4f", WORD_VECTORS, epoch + 1, loss / len(order))
    return training.result(tfidf)


class _Rows:
    """Trained rows of a table, and what Adam knows of each."""

    def __init__(self, values: Float32[np.ndarray, "row dim"]) -> None:
        self.values = values
        self._squares = np.zeros(len(values), dtype=np.float32)
        self._num_steps = 0

    def update(
        self, rows: Int64[np.ndarray, some], gradients: Float32[np.ndarray, "some dim"]
    ) -> None:
        """Take a step for some rows, each of them once."""
        self._num_steps += 1
        squares = _DECAY * self._squares[rows]
        squares += (1 - _DECAY) * np.square(gradients).mean(axis=1)
        self._squares[rows] = squares
        unbiased = 1 - _DECAY**self._num_steps
        rates = _RATE / (np.sqrt(squares / unbiased) + _TINY)
        self.values[rows] -= rates[:, None] * gradients


class _Training:
    """The vectors while they are trained."""

    def __init__(
        self,
        features: Float32[csr_array, "document feature"],
        truth: Float32[csr_array, "document label"],
        names: Float32[csr_array, "label feature"],
        dim: int,
        rng: np.random.Generator,
    ) -> None:
        self._features, self._names, self._rng = features, names, rng
        self._truth = truth.sorted_indices()
        num_labels, num_words = names.shape
        length = np.float32(1 / np.sqrt(dim))  # of rows: about 1
        self._words = _Rows(length * rng.standard_normal((num_words, dim), dtype=np.float32))
        counts = np.bincount(truth.indices, minlength=num_labels)
        own = rng.standard_normal((num_labels, dim), dtype=np.float32)
        own *= _OWN_LENGTH * length
        own[counts == 0] = 0
        self._own = _Rows(own)
        self._carried = np.flatnonzero(counts)
        self._cumulative = np.cumsum(np.sqrt(counts[self._carried]))

    def begin_with(self, start: WordVectors, tfidf: TfidfModel) -> None:
        """Take vectors of words that both know, and of labels: f_y = u(y) - unit(sum_w n_w e_w)."""
        column_of = {token: column for column, token in enumerate(start.tfidf.tokens)}
        known = [row for row, token in enumerate(tfidf.tokens) if token in column_of]
        columns = [column_of[tfidf.tokens[row]] for row in known]
        self._words.values[known] = _floats(start.words.take(columns))
        carried = self._carried[start.labels.scales[self._carried] > 0]
        of_names = _floats(start.names.take(carried))
        self._own.values[carried] = _floats(start.labels.take(carried)) - of_names

    def step(self, documents: Int64[np.ndarray, batch]) -> float:
        """Update the vectors by the gradients of some documents; return their mean loss."""
        truth = self._truth[documents]
        labels = self._labels_of_step(truth.indices)
        size = len(documents)
        both = vstack([self._features[documents], self._names[labels]], format="csr")
        columns, places = np.unique(both.indices, return_inverse=True)
        read = csr_array((both.data, places, both.indptr), (both.shape[0], len(columns)))
        units, lengths = _unit(read @ self._words.values[columns])
        texts, of_names = units[:size], units[size:]
        vectors, own_lengths = _unit(of_names + self._own.values[labels])

        loss, slopes = _decoupled_softmax(_SCALE * (texts @ vectors.T), truth, labels)
        of_vectors = _through_unit(_SCALE * (slopes.T @ texts), vectors, own_lengths)
        of_texts = _SCALE * (slopes @ vectors)
        of_sums = _through_unit(np.concatenate([of_texts, of_vectors]), units, lengths)
        self._words.update(columns, read.T @ of_sums)
        self._own.update(labels, of_vectors)
        return loss

    def _labels_of_step(self, carried: Int64[np.ndarray, pair]) -> Int64[np.ndarray, some]:
        """Return the labels of a step's documents with others that are drawn, rising."""
        if len(self._carried) <= _NUM_DRAWN:
            return self._carried
        draws = self._rng.random(_NUM_DRAWN) * self._cumulative[-1]
        places = np.searchsorted(self._cumulative, draws, side="right")
        return np.union1d(carried, self._carried[np.minimum(places, len(self._carried) - 1)])

    def result(self, tfidf: TfidfModel) -> WordVectors:
        """Return the vectors as they are served."""
        words, units = self._words.values, ByteVectors.rounded(self._words.values)
        rounded = []
        for first in range(0, self._names.shape[0], _BLOCK):
            block = slice(first, first + _BLOCK)
            names, _ = _unit(self._names[block] @ words)
            both = (names + self._own.values[block], names)
            rounded.append([ByteVectors.rounded(vectors) for vectors in both])
        of_labels, of_names = map(ByteVectors.joined, zip(*rounded, strict=True))
        lengths = np.linalg.norm(words, axis=1).astype(np.float32)
        scaled = ByteVectors(units.bytes, units.scales * lengths)
        return WordVectors(scaled, of_labels, of_names, tfidf)


def _floats(vectors: ByteVectors) -> Float32[np.ndarray, "row dim"]:
    found: Float32[np.ndarray, "row dim"] = vectors.scales[:, None] * vectors.bytes
    return found


def _decoupled_softmax(
    scores: Float32[np.ndarray, "batch some"],
    truth: Float32[csr_array, "batch label"],
    labels: Int64[np.ndarray, some],
) -> tuple[float, Float32[np.ndarray, "batch some"]]:
    """Return the mean loss of documents, and its derivative by each score."""
    counts = np.diff(truth.indptr)
    rows = np.repeat(np.arange(len(counts)), counts)
    at = (rows, np.searchsorted(labels, truth.indices))
    weights = (1 / (counts[rows] * len(counts))).astype(np.float32)
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    own = exponentials[at]
    exponentials[at] = 0
    sums = own + exponentials.sum(axis=1)[rows]
    loss = float((weights * np.log(sums / own)).sum())
    per_document = np.bincount(rows, weights / sums, len(counts)).astype(np.float32)
    slopes = exponentials * per_document[:, None]
    slopes[at] = weights * (own / sums - 1)
    return loss, slopes


def _unit(
    sums: Float32[np.ndarray, "row dim"],
) -> tuple[Float32[np.ndarray, "row dim"], Float32[np.ndarray, "row 1"]]:
    """Return rows at length 1, zeros as they are, and the lengths before."""
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    lengths[lengths == 0] = np.inf
    return sums / lengths, lengths


def _through_unit(
    gradients: Float32[np.ndarray, "row dim"],
    units: Float32[np.ndarray, "row dim"],
    lengths: Float32[np.ndarray, "row 1"],
) -> Float32[np.ndarray, "row dim"]:
    """Return gradients of rows, given those of the rows at length 1."""
    along = np.einsum("ij,ij->i", gradients, units)
    found: Float32[np.ndarray, "row dim"] = (gradients - along[:, None] * units) / lengths
    return found
