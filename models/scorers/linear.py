"""Linear scores of labels over document vectors, and their correction (Bamler & Mandt 2020).

A model that was trained to tell labels from drawn ones, y' ~ p_n(y'|x), learns log p_D - log p_n
up to a constant of the document. Adding log p_n(y|x) gives the scores of a softmax classifier
(Eq. 5); p_n is then called the *correction*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from longtail.models.label_tree.tree import LabelTree
from longtail.models.names import CorrectionName


@dataclass(frozen=True, slots=True)
class LinearModel:
    """Linear scores of labels over document vectors: <phi_doc(x), w_l> + b_l.

    Attributes:
        weight: One row w_l for each label that it can score.
        bias: b_l of each row.
        labels: The label index of each row, rising.
    """

    weight: Float32[np.ndarray, "covered dim"]
    bias: Float32[np.ndarray, covered]
    labels: Int64[np.ndarray, covered]


@dataclass(frozen=True, slots=True)
class LinearScorer:
    """The scorer `linear` of a trained model.

    Attributes:
        model: Its rows; labels without training documents have none.
        correction: What it was trained to be corrected with (Bamler & Mandt 2020, Eq. 5); with
            "prior", log p_n is the log of a label's share of the training pairs.
        tree: p_n(y|x) over the labels of the catalogue, where the correction is "tree"; else None.
            Labels that were added after training are no leaves of it.
    """

    model: LinearModel
    correction: CorrectionName
    tree: LabelTree | None = None


@runtime_checkable  # the test run checks annotations by isinstance
class Correction(Protocol):
    """log p_n(y|x) of the labels that a model's negatives were drawn from."""

    def log_probs(self, vectors: Float32[Tensor, "batch dim"]) -> Float32[Tensor, "#batch label"]:
        """Return log p_n of all labels, in nats; a constant of the document may be missing."""
        ...


@dataclass(frozen=True, slots=True)
class TreeCorrection:
    """p_n of a label tree."""

    tree: LabelTree

    def log_probs(self, vectors: Float32[Tensor, "batch dim"]) -> Float32[Tensor, "batch label"]:
        """Return log p_n(y|x)."""
        return self.tree.log_probs(self.tree.project(vectors))


@dataclass(frozen=True, slots=True)
class PriorCorrection:
    """A p_n that is the same for every document.

    Attributes:
        log_prior: log p_n of every label; -inf for labels that were never drawn.
    """

    log_prior: Float32[Tensor, label]

    def log_probs(self, _: Float32[Tensor, "batch dim"]) -> Float32[Tensor, "1 label"]:
        """Return log p_n(y), in one row for all documents."""
        return self.log_prior.unsqueeze(0)


def corrected_scores(
    model: LinearModel, vectors: Float32[Tensor, "batch dim"], correction: Correction | None
) -> Float32[Tensor, "batch covered"]:
    """Return x·w_y + b_y + log p_n(y|x) (Bamler & Mandt 2020, Eq. 5).

    Args:
        model: Its weights are copied to the device of the vectors.
        vectors: The documents' vectors.
        correction: p_n; None: nothing is added.
    """
    device = vectors.device
    weight, bias = (torch.from_numpy(x).to(device) for x in (model.weight, model.bias))
    scores = torch.addmm(bias, vectors, weight.T)
    if correction is None:
        return scores
    return scores + correction.log_probs(vectors)[:, torch.from_numpy(model.labels).to(device)]
