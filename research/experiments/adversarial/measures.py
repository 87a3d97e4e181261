"""How good linear scorers are: their likelihood and accuracy, normalised over all labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array
from torch import Tensor

from longtail.models.scorers.linear import LinearModel
from research.experiments.adversarial.corrections import Correction, corrected_scores

_MAX_SCORES = 2**24  # held at a time when a model is measured


@dataclass(frozen=True, slots=True)
class LinearMetrics:
    """How good linear scorers are on documents.

    Attributes:
        log_likelihood: Mean of log p(y|x) over pairs, in nats; -inf where a label of theirs has
            probability zero.
        accuracy: Share of the documents with a label whose best-scored label is one of theirs.
    """

    log_likelihood: float
    accuracy: float


def measure_linear(
    model: LinearModel,
    vectors: Float32[np.ndarray, "document dim"],
    truth: Float32[csr_array, "document label"],
    correction: Correction | None,
    device: str = "cpu",
) -> LinearMetrics:
    """Measure the corrected scores, normalised over all labels, as Bamler & Mandt's Figure 1.

    Costs documents x labels x dim. Of equal scores the smaller label is best.

    Args:
        model: With a row for every label.
        vectors: Document vectors.
        truth: Labels of the documents; every stored entry is a pair.
        correction: The method's correction.
        device: Where to compute; the correction's own.
    """
    total, num_right = 0.0, 0
    for rows, log_probs in _log_probs_in_parts(model, vectors, correction, device):
        own = truth[rows]
        documents = np.repeat(np.arange(len(rows)), np.diff(own.indptr))
        total += float(log_probs[documents, own.indices].sum(dtype=np.float64))
        best = log_probs.argmax(axis=1)
        num_right += len(np.unique(documents[own.indices == best[documents]]))
    return LinearMetrics(total / truth.nnz, num_right / int((np.diff(truth.indptr) > 0).sum()))


def _log_probs_in_parts(
    model: LinearModel,
    vectors: Float32[np.ndarray, "document dim"],
    correction: Correction | None,
    device: str,
) -> Iterator[tuple[Int64[np.ndarray, part], Float32[np.ndarray, "part label"]]]:
    num_parts = len(vectors) * len(model.bias) // _MAX_SCORES + 1
    for rows in np.array_split(np.arange(len(vectors)), num_parts):
        part = torch.from_numpy(vectors[rows]).to(device)
        yield rows, corrected_log_probs(model, part, correction).cpu().numpy()


def corrected_log_probs(
    model: LinearModel, vectors: Float32[Tensor, "batch dim"], correction: Correction | None
) -> Float32[Tensor, "batch covered"]:
    """Return the corrected scores, normalised over all labels: log p(y|x) in nats (Eq. 10)."""
    return corrected_scores(model, vectors, correction).log_softmax(dim=1)
