"""The dense half of a model, which a model may lack; importing it imports PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from longtail.models.encoders.dual_encoder import DualEncoder
from longtail.models.encoders.families import Tokenizer


@dataclass(frozen=True, slots=True)
class DenseParts:
    """What scores texts by their vectors.

    Attributes:
        encoder: The dual encoder.
        tokenizer: Its tokenizer.
        max_tokens: Tokens that it reads of a document.
        label_vectors: phi_label of every label.
        document_prefix: Put before each document, as in training.
        is_tuned: Whether the encoder was fine-tuned on the corpus. Else `label_vectors` are those
            of names, without keywords.
    """

    encoder: DualEncoder
    tokenizer: Tokenizer
    max_tokens: int
    label_vectors: Float32[np.ndarray, "label dim"]
    document_prefix: str = ""
    is_tuned: bool = True
