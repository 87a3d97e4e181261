"""The types of Transformers, for the type checker alone: to import that package takes 3 s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from jaxtyping import Float
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel, TokenizersBackend

    Transformer = PreTrainedModel
    Tokenizer = TokenizersBackend
else:
    Transformer = nn.Module
    Tokenizer = Any


@dataclass(frozen=True, slots=True)
class LastLayer:
    """The output of an encoder, by the name that Transformers gives it."""

    last_hidden_state: Float[Tensor, "batch token dim"]


def is_transformer(module: nn.Module) -> TypeGuard[Transformer]:
    """Return whether a module is an encoder with its weights, not one that stands in for it."""
    return hasattr(module, "get_input_embeddings")
