"""Attention for short texts in bfloat16 on CPUs, by two matrix products and a softmax between.

PyTorch's fused kernel multiplies matrices for each text and head by itself. With some ten tokens
that is a call of a microsecond's work, and as long again around it: a quarter of the time of an
encoder. Here it is one product of oneDNN for all texts and heads. The scores are rounded to
bfloat16 between product and softmax, which the fused kernel does not do; the softmax is float32's.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask

from models.encoders.cpu.torch_internals import compiled
from models.errors import ConfigError

_NAME = "longtail_short"
MOST_TOKENS = 256
"""Of a text; for longer ones the scores of all pairs take more memory than they are worth."""

Heads = Float[Tensor, "text head token dim"]


def use_short_attention(transformer: PreTrainedModel) -> None:
    """Let an encoder compute attention by this module.

    Raises:
        ConfigError: Its code does not allow for other attention than its own.
    """
    AttentionInterface.register(_NAME, _attention)
    AttentionMaskInterface.register(_NAME, eager_mask)
    transformer.set_attn_implementation(_NAME)
    if transformer.config._attn_implementation != _NAME:
        raise ConfigError(
            f"encoder of type {transformer.config.model_type!r}: its attention can't be replaced; "
            "it keeps its own"
        )


def _attention(
    module: nn.Module,  # noqa: ARG001  # as transformers calls it
    query: Heads,
    key: Heads,
    value: Heads,
    attention_mask: Float[Tensor, "text one token token"] | None,
    scaling: float | None = None,
    **_: object,
) -> tuple[Float[Tensor, "text token head dim"], None]:
    """Return softmax(query key^T scaling + mask) value (Vaswani et al. 2017, Eq. 1)."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    mask = query.new_zeros(1) if attention_mask is None else attention_mask
    values = compiled(weighted_values)(query, key, value, mask, scale, MOST_TOKENS)
    return values.transpose(1, 2), None


def weighted_values(  # pragma: no cover  # no tracer sees what PyTorch compiles
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float, most_tokens: int
) -> Tensor:
    """Return softmax(query key^T scale + mask) value, to be compiled by PyTorch.

    Args:
        query: (text, head, token, dim).
        key: As the query.
        value: As the query.
        mask: In the precision of the query; of any shape that fits (text, head, token, token).
        scale: Of the products.
        most_tokens: Of a text; for longer ones PyTorch's fused kernel does it.
    """
    num_texts, num_heads, num_tokens, dim = query.shape
    if num_tokens > most_tokens:
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    flat = num_texts * num_heads
    queries = query.reshape(flat, num_tokens, dim)
    keys = key.reshape(flat, num_tokens, dim)
    scores = torch.bmm(queries, keys.transpose(1, 2)).float().mul_(scale)
    scores = scores.view(num_texts, num_heads, num_tokens, num_tokens).add_(mask)
    weights = torch.softmax(scores, dim=-1).to(value.dtype).view(flat, num_tokens, num_tokens)
    values = torch.bmm(weights, value.reshape(flat, num_tokens, dim))
    return values.view(num_texts, num_heads, num_tokens, dim)
