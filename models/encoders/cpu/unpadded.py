"""BERT's encoder for many short texts, on CPUs: no padding, no more than is asked for.

A batch of texts of unlike lengths is padding for a good part, which an encoder computes as if it
were text. Here the tokens of all texts stand one after the other, and only attention, a tenth of
the work, sees them text by text. And a document's vector is made of its first token ([CLS], DEPL
Eq. 1): of the last layer, what comes after attention is computed for first tokens alone. With six
layers, that is an eighth of all products.

The forward pass is one call of PyTorch's own code, which leaves Python's lock alone. Its bits are
not the encoder's, as it rounds between other steps; that they are as near to those of float32 is
checked whenever a model is loaded (`longtail.models.encoders.cpu.backend`).
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longtail.models.encoders.cpu.torch_internals import held_outside_of_python, packed
from longtail.models.encoders.families import BERT_LIKE, LastLayer, Transformer
from longtail.models.errors import ConfigError

PADDING_COST = 0.25
"""Most that a token of padding costs, in tokens of text: it takes part in attention alone, but in
its memory, too."""

MAX_TOKENS = 256
"""Longest text whose attention is computed by matrix products. For longer ones the scores of all
pairs of tokens take more memory than they are worth, and PyTorch's fused kernel does it."""


class UnpaddedBert(nn.Module):
    """Stands in for a transformer of BERT's architecture; only for inference.

    Attributes:
        config: The transformer's.
        dtype: What it computes in.
    """

    def __init__(self, transformer: Transformer) -> None:
        """Take the weights of a transformer in float32 or bfloat16."""
        super().__init__()
        config = transformer.config
        if config.model_type not in BERT_LIKE or config.hidden_act != "gelu":
            raise ConfigError(
                f"encoder of type {config.model_type!r} with activation "
                f"{getattr(config, 'hidden_act', None)!r}; expected 'gelu' and one of "
                f"{', '.join(BERT_LIKE)}"
            )
        self.config = config
        self.dtype = transformer.dtype
        from longtail.models.encoders.cpu.unpadded_forward import (
            last_layer,  # PyTorch without oneDNN can't compile it
        )

        self._last_layer = last_layer
        self._sizes = config.num_hidden_layers, config.num_attention_heads, config.layer_norm_eps
        self._weights = held_outside_of_python(_weights_of(transformer))

    def forward(
        self, input_ids: Int[Tensor, "batch token"], attention_mask: Int[Tensor, "batch token"]
    ) -> LastLayer:
        """Return the last layer, as the transformer itself does; zeros in place of padding."""
        hidden = self._states(input_ids, attention_mask, of_first=False)  # (batch, token, dim)
        return LastLayer(last_hidden_state=hidden)

    def first_states(
        self, input_ids: Int[Tensor, "batch token"], attention_mask: Int[Tensor, "batch token"]
    ) -> Float[Tensor, "batch dim"]:
        """Return the last layer of the first token of each text."""
        return self._states(input_ids, attention_mask, of_first=True)

    def _states(self, ids: Tensor, mask: Tensor, *, of_first: bool) -> Tensor:
        return self._last_layer(ids, mask, self._weights, *self._sizes, MAX_TOKENS, of_first)


def _weights_of(transformer: Any) -> list[Tensor]:
    """Return a transformer's weights in the order in which `last_layer` takes them.

    Four of the embeddings, then twelve of each layer; dim: of a token, inner: of the feed-forward
    layer.
    """
    embeddings = transformer.embeddings
    positions, kind = embeddings.position_embeddings, embeddings.token_type_embeddings.weight[0]
    # RoBERTa and its kin count positions from the padding id + 1.
    start = 0 if positions.padding_idx is None else positions.padding_idx + 1
    weights = [
        embeddings.word_embeddings.weight,  # (id, dim)
        # All tokens are of the first kind: its embedding is added to that of each position.
        (positions.weight[start:].float() + kind.float()).to(transformer.dtype),  # (position, dim)
        *_norm(embeddings.LayerNorm),  # (dim,) twice
    ]
    for layer in transformer.encoder.layer:
        own, after = layer.attention.self, layer.attention.output
        weights += [
            *_linear(own.query, own.key, own.value),  # (3 dim, dim), (3 dim,)
            *_linear(after.dense),  # (dim, dim), (dim,)
            *_norm(after.LayerNorm),  # (dim,) twice
            *_linear(layer.intermediate.dense),  # (inner, dim), (inner,)
            *_linear(layer.output.dense),  # (dim, inner), (dim,)
            *_norm(layer.output.LayerNorm),  # (dim,) twice
        ]
    return [weight.detach() for weight in weights]


def _linear(*layers: nn.Linear) -> tuple[Tensor, Tensor]:
    """Return packed weights and bias of layers of the same input, as of one."""
    weight = torch.cat([layer.weight for layer in layers])
    return packed(weight), torch.cat([layer.bias for layer in layers])


def _norm(layer: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    return layer.weight, layer.bias
