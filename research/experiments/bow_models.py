"""The papers' small models over sparse features, trained so that a step costs what it draws.

Three of them: one hidden linear layer (Rawat et al. 2021, section 5.2); the same with vectors of
length one, for losses of cosines; and a two-layer ReLU encoder whose vectors have length one, too
(Reddi et al. 2019, section 5). Only the rows of the features and labels of a batch are read and
changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn.functional import normalize

from longtail.models.errors import DataError
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.learning.objectives import Objective, Scorer
from longtail.training.learning.sampling import (
    Exclude,
    make_pairs,
    pair_indices,
    pairs_at,
    step_generator,
)
from research.experiments.data import Part

_ORDER, _STEP = 1, 2  # what a seed is for: the order of an epoch, or the draws of a step
_CHUNK = 1024  # documents whose scores of all labels are held at once
_SMALLEST = 1e-10  # of a root mean square, so that a gradient of 0 is no step

Batch = tuple[Int64[np.ndarray, "batch"], Int64[np.ndarray, "batch"]]
"""Documents and labels of pairs."""


class BagModel(nn.Module, ABC):
    """Scores labels by inner products with a sum of feature vectors.

    Attributes:
        features: A vector of each feature.
        labels: A vector of each label.
    """

    features: nn.EmbeddingBag
    labels: nn.Embedding

    @abstractmethod
    def encode(self, documents: Float32[csr_array, "batch feature"]) -> Float[Tensor, "batch dim"]:
        """Return the vectors of documents."""

    @abstractmethod
    def label_vectors(self, labels: Int64[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
        """Return the vectors of labels."""

    def _bags(self, documents: Float32[csr_array, "batch feature"]) -> Float[Tensor, "batch width"]:
        device = self.features.weight.device
        indices, offsets = (
            torch.from_numpy(array.astype(np.int64)).to(device)
            for array in (documents.indices, documents.indptr[:-1])
        )
        weights = torch.from_numpy(documents.data).to(device)
        bags: Tensor = self.features(indices, offsets, per_sample_weights=weights)
        return bags


class HiddenLayerModel(BagModel):
    """One hidden layer with a linear activation, and an output layer with a bias."""

    def __init__(self, num_features: int, num_labels: int, width: int) -> None:
        """Start with random feature vectors, and every score at 0."""
        super().__init__()
        self.features = _feature_table(num_features, width)
        self.labels = nn.Embedding(num_labels, width + 1, sparse=True)  # the last is the bias
        nn.init.zeros_(self.labels.weight)

    def encode(self, documents: Float32[csr_array, "batch feature"]) -> Float[Tensor, "batch dim"]:
        """Return the hidden layer, and a 1 for the bias."""
        bags = self._bags(documents)
        return torch.cat([bags, torch.ones_like(bags[:, :1])], dim=1)

    def label_vectors(self, labels: Int64[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
        """Return weights and bias of labels."""
        vectors: Tensor = self.labels(labels)
        return vectors


class SphereModel(BagModel):
    """A feature layer, ReLU, a linear layer; documents and labels on the unit sphere."""

    def __init__(self, num_features: int, num_labels: int, width: int) -> None:
        """Start with random vectors."""
        super().__init__()
        self.features = _feature_table(num_features, width)
        self.mix = nn.Linear(width, width, bias=False)
        self.labels = nn.Embedding(num_labels, width, sparse=True)
        nn.init.normal_(self.labels.weight, std=width**-0.5)

    def encode(self, documents: Float32[csr_array, "batch feature"]) -> Float[Tensor, "batch dim"]:
        """Return vectors of length one; of length 0 for a document without features."""
        return normalize(self.mix(self._bags(documents).relu()), dim=1)

    def label_vectors(self, labels: Int64[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
        """Return vectors of length one."""
        return normalize(self.labels(labels), dim=-1)


class CosineModel(BagModel):
    """One hidden layer with a linear activation; documents and labels on the unit sphere."""

    def __init__(self, num_features: int, num_labels: int, width: int) -> None:
        """Start with random vectors."""
        super().__init__()
        self.features = _feature_table(num_features, width)
        self.labels = nn.Embedding(num_labels, width, sparse=True)
        nn.init.normal_(self.labels.weight, std=width**-0.5)

    def encode(self, documents: Float32[csr_array, "batch feature"]) -> Float[Tensor, "batch dim"]:
        """Return vectors of length one; of length 0 for a document without features."""
        return normalize(self._bags(documents), dim=1)

    def label_vectors(self, labels: Int64[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
        """Return vectors of length one."""
        return normalize(self.labels(labels), dim=-1)


class RowAdagrad:
    """Adagrad with one rate a row: the rate falls with the sum of the row's mean squared gradients.

    Rows without a gradient are left alone, so a step costs what the batch touched.
    """

    def __init__(self, model: nn.Module, learning_rate: float) -> None:
        """Start for all parameters, each a matrix.

        Args:
            model: Changed in place.
            learning_rate: Root mean square of a row's first change.
        """
        self._parameters = list(model.parameters())
        self._sums = [torch.zeros_like(each[:, 0]) for each in self._parameters]
        self._learning_rate = learning_rate

    @torch.no_grad()
    def step(self) -> None:
        """Change the parameters by their gradients, and forget these."""
        for parameter, sums in zip(self._parameters, self._sums, strict=True):
            gradient = parameter.grad
            assert gradient is not None
            if gradient.is_sparse:
                gradient = gradient.coalesce()
                rows, change = gradient.indices()[0], gradient.values()
            else:
                rows, change = torch.arange(len(parameter), device=parameter.device), gradient
            sums.index_add_(0, rows, change.square().mean(dim=1))
            rate = self._learning_rate / sums[rows].sqrt().clamp(min=_SMALLEST)
            parameter.index_add_(0, rows, change * -rate.unsqueeze(1))
            parameter.grad = None


@dataclass(frozen=True, slots=True)
class Learning:
    """How a model is trained.

    Attributes:
        objective: What a batch of pairs costs.
        exclude: Labels that are no negatives of a pair.
        reduction: "pairs": every pair once an epoch, in random order. "documents": the same, the
            pairs of a document together, so that all labels are scored once a document. "one": one
            random pair of each document an epoch.
        batch_size: Pairs a step.
        epochs: Passes over the training documents.
        learning_rate: Learning rate of `RowAdagrad`.
    """

    objective: Objective
    exclude: Exclude
    reduction: str
    batch_size: int
    epochs: int
    learning_rate: float


def train_model(model: BagModel, part: Part, learning: Learning, seed: int) -> None:
    """Train a model in place; order and draws follow from the seed."""
    optimizer = RowAdagrad(model, learning.learning_rate)
    for epoch in range(learning.epochs):
        batches = _batches(part.truth, learning, np.random.default_rng([seed, _ORDER, epoch]))
        for number, batch in enumerate(batches):
            rng = np.random.default_rng([seed, _STEP, epoch, number])
            _train_step(model, part, learning, batch, rng)
            optimizer.step()


@torch.no_grad()
def rank_documents(
    model: BagModel, documents: Float32[csr_array, "document feature"], k: int
) -> Int64[np.ndarray, "document k"]:
    """Return the k best labels of each document, padded where there are fewer than k."""
    num_labels = model.labels.num_embeddings
    device = model.labels.weight.device
    vectors = model.label_vectors(torch.arange(num_labels, device=device))
    ranked = np.full((documents.shape[0], k), NO_LABEL, dtype=np.int64)
    for start in range(0, documents.shape[0], _CHUNK):
        scores = model.encode(documents[start : start + _CHUNK]) @ vectors.T
        best = scores.topk(min(k, num_labels), dim=1).indices
        ranked[start : start + len(best), : best.shape[1]] = best.cpu().numpy()
    return ranked


def _train_step(
    model: BagModel, part: Part, learning: Learning, batch: Batch, rng: np.random.Generator
) -> None:
    """Leave the gradients of a batch's loss in the model."""
    device = str(model.labels.weight.device)
    documents, rows = np.unique(batch[0], return_inverse=True)
    vectors = model.encode(part.features[documents])
    score = _scorer(model, vectors, torch.from_numpy(rows).to(device))
    pairs = make_pairs(part.truth, *batch, exclude=learning.exclude, device=device)
    loss = learning.objective(pairs, score, step_generator(rng, device))
    loss.backward()  # type: ignore[no-untyped-call]


def _scorer(
    model: BagModel, vectors: Float[Tensor, "document dim"], rows: Int64[Tensor, batch]
) -> Scorer:
    """Return the scorer of pairs; of labels that all pairs share, each document is scored once."""

    def score(labels: Int64[Tensor, "#batch k"]) -> Float[Tensor, "batch k"]:
        found = model.label_vectors(labels)
        if len(labels) == 1:
            return (vectors @ found[0].T).index_select(0, rows)
        return torch.einsum("bd,bkd->bk", vectors.index_select(0, rows), found)

    return score


def _batches(
    truth: Float32[csr_array, "document label"], learning: Learning, rng: np.random.Generator
) -> Iterator[Batch]:
    size = learning.batch_size
    if learning.reduction == "documents":
        yield from pair_batches(truth, rng.permutation(truth.shape[0]).astype(np.int64), size)
        return
    if learning.reduction == "pairs":
        numbers = rng.permutation(truth.nnz).astype(np.int64)
        yield from (pairs_at(truth, part) for part in _pieces(numbers, size))
        return
    for documents in _pieces(rng.permutation(truth.shape[0]).astype(np.int64), size):
        yield documents, one_label_each(truth, documents, rng)


def pair_batches(
    truth: Float32[csr_array, "document label"],
    order: Int64[np.ndarray, ordered],
    batch_size: int,
) -> Iterator[tuple[Int64[np.ndarray, batch], Int64[np.ndarray, batch]]]:
    """Yield documents and labels of all pairs, a batch at a time.

    Pairs of a document stay together, so that it is encoded once. For pairs in random order, cut a
    permutation of their numbers and give the pieces to `pairs_at`.

    Args:
        truth: Labels of the documents.
        order: Documents, in the order wanted.
        batch_size: Pairs a batch; the last may have fewer.
    """
    waiting = np.empty(0, dtype=np.int64)
    for start in range(0, len(order), batch_size):
        documents = order[start : start + batch_size]
        waiting = np.concatenate([waiting, pair_indices(truth, documents)])
        while len(waiting) >= batch_size:
            yield pairs_at(truth, waiting[:batch_size])
            waiting = waiting[batch_size:]
    if len(waiting):
        yield pairs_at(truth, waiting)


def one_label_each(
    truth: Float32[csr_array, "document label"],
    documents: Int64[np.ndarray, batch],
    rng: np.random.Generator,
) -> Int64[np.ndarray, batch]:
    """Return one label of each document, all of its labels as likely."""
    counts = np.diff(truth.indptr)[documents]
    if not counts.all():
        raise DataError(
            f"document {int(documents[np.argmin(counts)])} has no label to train on; leave "
            "documents without labels out"
        )
    places = truth.indptr[documents] + rng.integers(counts)
    labels: Int64[np.ndarray, batch] = truth.indices[places].astype(np.int64)
    return labels


def _pieces(numbers: Int64[np.ndarray, number], size: int) -> Iterator[Int64[np.ndarray, piece]]:
    yield from (numbers[start : start + size] for start in range(0, len(numbers), size))


def _feature_table(num_features: int, width: int) -> nn.EmbeddingBag:
    """Return random feature vectors of about length one."""
    table = nn.EmbeddingBag(num_features, width, mode="sum", sparse=True)
    nn.init.normal_(table.weight, std=width**-0.5)
    return table
