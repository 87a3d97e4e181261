"""How a text's vector is made of an encoder's last layer: pooling, and what follows the pooler."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from longtail.models.names import Activation, Pooling


@dataclass(frozen=True, slots=True)
class VectorHead:
    """What a dual encoder does with the last layer of its transformer; the default is DEPL's.

    Attributes:
        document_pooling: What stands for a document (DEPL Eq. 1: [CLS]).
        label_pooling: What stands for a label's text (DEPL Eq. 2: the mean, which does not say
            whether over [CLS] and [SEP] too: "mean" is, "words" is not; Table 7 compares it with
            [CLS]).
        activation: Of the pooler's output.
        is_normalized: Whether all vectors get one length, sqrt(dim), so that inner products are
            cosines times dim. At length 1 each number would be tiny, and a classifier over them
            would learn sqrt(dim) times slower than over the output of a layer norm.
    """

    document_pooling: Pooling = "cls"
    label_pooling: Pooling = "mean"
    activation: Activation = "identity"
    is_normalized: bool = False

    def finished(self, vectors: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch dim"]:
        """Return the vectors of texts, from what the pooler makes of them."""
        if self.activation == "tanh":
            vectors = torch.tanh(vectors)
        if self.is_normalized:
            vectors = math.sqrt(vectors.shape[1]) * normalize(vectors, dim=1)
        return vectors


def pooled(
    hidden: Float[Tensor, "batch token dim"], mask: Int[Tensor, "batch token"], pooling: Pooling
) -> Float[Tensor, "batch dim"]:
    """Return what stands for each text of a batch, from the last layer.

    Args:
        hidden: The last layer.
        mask: 1 for a token, 0 for padding, which is on the right; each text has a token.
        pooling: Which tokens count. "words" leaves out the first and the last of each text, which
            are special where this pooling is allowed; a text of no others has their mean.
    """
    if pooling == "cls":
        return hidden[:, 0]
    if pooling == "last":
        rows = torch.arange(len(hidden), device=hidden.device)
        return hidden[rows, mask.sum(dim=1) - 1]
    if pooling == "words":
        mask = _between(mask)
    weights = mask.unsqueeze(-1).to(hidden.dtype)  # (batch, token, 1)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1)


def _between(mask: Int[Tensor, "batch token"]) -> Int[Tensor, "batch token"]:
    """Return the mask without the first and the last token of each text that has others."""
    places = torch.arange(mask.shape[1], device=mask.device)
    is_between = (places > 0) & (places < mask.sum(dim=1, keepdim=True) - 1)
    return torch.where(is_between.any(dim=1, keepdim=True), is_between.to(mask.dtype), mask)
