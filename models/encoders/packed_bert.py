"""BERT's encoder with gradients, on CPUs: no padding, and of the last layer no more than is asked.

The tokens of a batch stand one after the other, and only attention sees them text by text. For a
document's vector, which is made of its first token ([CLS], DEPL Eq. 1), what comes after attention
in the last layer is computed for first tokens alone: a seventh of all products with six layers.
It has the transformer's own weights, dropout and gradients; other draws of dropout, and other last
bits, are all that differs. Services compute by `longtail.models.encoders.cpu.unpadded`, which is
faster and has no gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout, linear, scaled_dot_product_attention

from longtail.models.encoders.families import BERT_LIKE
from longtail.models.encoders.tokens import TokenBatch
from longtail.models.encoders.types import is_transformer

_MAX_TOKENS = 256
"""Of a text whose attention is computed by matrix products, whose gradients are the faster ones;
for longer ones they take more memory than they are worth."""
_SHAPES_A_DOUBLING = 16
"""Numbers of tokens that are computed with, between one and twice as many: oneDNN compiles its
kernels for each, and remembers them with their memory."""


def can_pack(transformer: nn.Module, batch: TokenBatch) -> bool:
    """Whether a batch can be computed here: BERT's architecture, on a processor.

    Not where layers are computed twice to save memory, which the transformer does by itself.
    """
    if not is_transformer(transformer) or batch.ids.device.type != "cpu":
        return False
    names = ("is_activation_checkpointing", "is_gradient_checkpointing")  # the latter of before
    name = next((each for each in names if hasattr(transformer, each)), "")
    return transformer.config.model_type in BERT_LIKE and not getattr(transformer, name, False)


def last_layer(transformer: Any, batch: TokenBatch) -> Float[Tensor, "batch token dim"]:
    """Return the last layer, as the transformer itself does; zeros in place of padding."""
    places = _Places.of(batch)
    hidden = _embedded(transformer.embeddings, batch, places)
    for layer in transformer.encoder.layer:
        hidden = _layer(layer, hidden, places)
    return places.padded(hidden)


def first_states(transformer: Any, batch: TokenBatch) -> Float[Tensor, "batch dim"]:
    """Return the last layer of the first token of each text."""
    places = _Places.of(batch)
    hidden = _embedded(transformer.embeddings, batch, places)
    *below, last = transformer.encoder.layer
    for layer in below:
        hidden = _layer(layer, hidden, places)
    return _layer(last, hidden, places, of_first=True)


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the tokens of a batch are.

    Attributes:
        num_texts: In the batch.
        width: Tokens of the longest.
        sources: The places of tokens among all of the batch, text by text, and again that of the
            first up to a number that others have too; None: all are tokens.
        targets: The same, where the repeated ones lie behind all of the batch.
        first: Of each text's first token, among the tokens.
        mask: (text, 1, 1, token): where there is one; None: everywhere.
    """

    num_texts: int
    width: int
    sources: Int[Tensor, "token"] | None
    targets: Int[Tensor, "token"] | None
    first: Int[Tensor, "text"]
    mask: Tensor | None

    @classmethod
    def of(cls, batch: TokenBatch) -> _Places:
        num_texts, width = batch.mask.shape
        is_token = batch.mask > 0
        if bool(is_token.all()):
            return cls(num_texts, width, None, None, torch.arange(num_texts) * width, None)
        ends = is_token.sum(dim=1).cumsum(dim=0)
        first = torch.cat([ends.new_zeros(1), ends[:-1]])
        tokens = is_token.flatten().nonzero()[:, 0]
        repeated = tokens.new_zeros(rounded_up(len(tokens)) - len(tokens))
        sources = torch.cat([tokens, repeated])
        targets = torch.cat([tokens, repeated + num_texts * width])
        return cls(num_texts, width, sources, targets, first, is_token[:, None, None, :])

    def packed(self, padded: Tensor) -> Tensor:
        """Return the rows of tokens: (text, token, ...) becomes (token, ...)."""
        rows = padded.flatten(0, 1)
        return rows if self.sources is None else rows.index_select(0, self.sources)

    def padded(self, packed: Tensor) -> Tensor:
        """Return rows of tokens text by text, with zeros in place of padding."""
        if self.targets is not None:
            size = self.num_texts * self.width
            rows = packed.new_zeros(size + 1, packed.shape[1])  # the last takes what is repeated
            packed = rows.index_copy(0, self.targets, packed)[:size]
        return packed.view(self.num_texts, self.width, -1)


def rounded_up(num_tokens: int) -> int:
    """Return the next larger number of tokens that is computed with."""
    unit = max(1, (1 << (num_tokens - 1).bit_length()) // (2 * _SHAPES_A_DOUBLING))
    return -(-num_tokens // unit) * unit


def _embedded(embeddings: Any, batch: TokenBatch, places: _Places) -> Float[Tensor, "token dim"]:
    """Return what the first layer reads of each token."""
    positions = embeddings.position_embeddings
    # RoBERTa and its kin count positions from the padding id + 1.
    start = 0 if positions.padding_idx is None else positions.padding_idx + 1
    numbers = torch.arange(start, start + places.width).expand(places.num_texts, -1)
    words = embeddings.word_embeddings(places.packed(batch.ids))
    kind = embeddings.token_type_embeddings.weight[0]  # all tokens are of the first
    summed = words + kind + positions(places.packed(numbers))
    embedded: Tensor = embeddings.dropout(embeddings.LayerNorm(summed))
    return embedded


def _layer(
    layer: Any, hidden: Float[Tensor, "token dim"], places: _Places, *, of_first: bool = False
) -> Tensor:
    """Return the output of a layer: of all tokens, or of the first of each text."""
    own, after = layer.attention.self, layer.attention.output
    rows = hidden.index_select(0, places.first) if of_first else hidden
    mixed = _attention(own, hidden, rows, places, of_first=of_first)
    mixed = after.LayerNorm(after.dropout(after.dense(mixed)) + rows)
    inner = layer.intermediate.intermediate_act_fn(layer.intermediate.dense(mixed))
    output = layer.output
    found: Tensor = output.LayerNorm(output.dropout(output.dense(inner)) + mixed)
    return found


def _attention(
    own: Any, hidden: Tensor, rows: Tensor, places: _Places, *, of_first: bool
) -> Float[Tensor, "row dim"]:
    """Return what rows take from all tokens of their texts, by all heads."""
    layers = [own.key, own.value] if of_first else [own.key, own.value, own.query]
    weight = torch.cat([each.weight for each in layers])
    bias = torch.cat([each.bias for each in layers])
    parts = list(places.padded(linear(hidden, weight, bias)).chunk(len(layers), dim=-1))
    if of_first:
        parts.append(own.query(rows).unsqueeze(1))  # (text, 1, dim)
    keys, values, queries = (
        part.view(*part.shape[:2], own.num_attention_heads, -1).transpose(1, 2) for part in parts
    )  # each (text, head, token, dim of a head)
    share = own.dropout.p if own.training else 0.0
    if places.width > _MAX_TOKENS:
        mixed = scaled_dot_product_attention(
            queries, keys, values, attn_mask=places.mask, dropout_p=share
        )
    else:
        scores = queries * keys.shape[-1] ** -0.5 @ keys.transpose(-1, -2)
        if places.mask is not None:
            scores = scores.masked_fill(~places.mask, float("-inf"))
        mixed = dropout(scores.softmax(dim=-1), share, training=True) @ values
    mixed = mixed.transpose(1, 2).flatten(-2)  # (text, token, dim)
    return mixed[:, 0] if of_first else places.packed(mixed)
