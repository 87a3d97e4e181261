"""Scores of linear models with the correction added to them (Bamler & Mandt 2020, Eq. 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float32
from torch import Tensor

from longtail.models.label_tree.tree import LabelTree
from longtail.models.scorers.linear import LinearModel


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
