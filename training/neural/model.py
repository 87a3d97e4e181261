"""The model that is trained: encoder, poolers and label weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32
from scipy.sparse import csr_array
from torch import Tensor, nn

from longtail.models.encoders.dual_encoder import DualEncoder, Role
from longtail.models.encoders.tokens import TokenBatch, TokenizedTexts


class DeplModel(nn.Module):
    """The dual encoder and a classifier over the same document vectors.

    f_cls(x, l) = <phi_doc(x), w_l> + b_l (DEPL Eq. 3, with a bias).
    """

    def __init__(self, encoder: DualEncoder, priors: Float32[np.ndarray, label]) -> None:
        """Start the classifier at the priors.

        Args:
            encoder: The dual encoder.
            priors: Share of training documents that carry each label, above 0 and below 1.
        """
        super().__init__()
        self.encoder = encoder
        self.classifier = nn.Linear(encoder.dim, len(priors))
        with torch.no_grad():
            self.classifier.weight.zero_()
            self.classifier.bias.copy_(torch.from_numpy(np.log(priors / (1 - priors))))
        self.encode_by: Callable[[TokenBatch, Role], Tensor] | None = None

    def encode(self, batch: TokenBatch, role: Role) -> Float[Tensor, "batch dim"]:
        """Return the vectors of a step's texts, encoded as its stage wants it (`encode_by`)."""
        return self.encoder(batch, role) if self.encode_by is None else self.encode_by(batch, role)

    def encoding_parameters(self) -> list[nn.Parameter]:
        """Return the parameters that make the vectors of texts."""
        encoder = self.encoder
        parts = (encoder.transformer, encoder.document_pooler, encoder.label_pooler)
        return [parameter for part in parts for parameter in part.parameters()]

    def classifier_scores(
        self, documents: Float[Tensor, "batch dim"]
    ) -> Float[Tensor, "batch label"]:
        """Return f_cls of each document for all labels."""
        scores: Tensor = self.classifier(documents)
        return scores


@dataclass(frozen=True, slots=True)
class TrainingTexts:
    """What neural training reads.

    Attributes:
        documents: Training documents as tokens.
        labels: Label descriptions as tokens.
        truth: The labels of each document.
        pad_id: The tokenizer's padding id.
    """

    documents: TokenizedTexts
    labels: TokenizedTexts
    truth: Float32[csr_array, "document label"]
    pad_id: int
