"""The pass of `models.encoders.cpu.unpadded`, in PyTorch's own code; importing it compiles it.

oneDNN compiles its kernels for each shape anew, and remembers some dozens; so they have to be few.
All that is done token by token is done in blocks of 256 tokens and a last one of a multiple of 8 or
16, and attention in groups of 4, 2 and 1 texts, each padded to a multiple of 16 tokens. That also
keeps what is passed on in a processor's own cache.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, pad

from models.encoders.cpu.attention import weighted_values
from models.encoders.cpu.torch_internals import compiled

_weighted_values = compiled(weighted_values)


@compiled
def _group(
    present: Tensor, text: Tensor, column: Tensor, begin: int, offset: int, num_heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what is fetched for the attention of some texts, what is not there, and the way back.

    A head of a token is a row of its own wherever rows are fetched: (token, query key value, head)
    where tokens stand one after the other, and (query key value, text, head, token) in attention.

    Args:
        present: (text, token) Whether there is a token.
        text: Of each token, its text in the group.
        column: And its place there.
        begin: Tokens of the texts before.
        offset: Rows of the attention of the texts before.
        num_heads: Of each layer.
    """
    count, width = present.shape
    heads = torch.arange(3 * num_heads)
    tokens = (present.view(-1).cumsum(0) + (begin - 1)).clamp_(0).view(1, count, 1, width)
    to_texts = tokens * (3 * num_heads) + heads.view(3, 1, num_heads, 1)
    absent = torch.where(present, 0.0, -1e30).to(torch.bfloat16).view(count, 1, 1, width)
    to_tokens = (text * num_heads).view(-1, 1) + heads[:num_heads]
    to_tokens = to_tokens * width + (column + offset).view(-1, 1)
    return to_texts.view(-1), absent, to_tokens.view(-1)


@compiled
def _groups(
    is_token: Tensor, lengths: Tensor, rows: Tensor, columns: Tensor, num_heads: int
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Return what `_group` does of each group of texts, and all ways back in one.

    Args:
        is_token: (text, token) Whether it is no padding.
        lengths: (text,) Tokens of each.
        rows: Of each token, its text.
        columns: And its place there.
        num_heads: Of each layer.
    """
    to_texts: list[Tensor] = []
    absents: list[Tensor] = []
    to_tokens: list[Tensor] = []
    text, begin, offset = 0, 0, 0
    while text < len(lengths):
        left = len(lengths) - text
        count = 4 if left >= 4 else (2 if left >= 2 else 1)
        of_group = lengths[text : text + count]
        longest = int(of_group.max())
        present = pad(is_token[text : text + count, :longest], [0, (-longest) % 16])
        end = begin + int(of_group.sum())
        to_text, absent, to_token = _group(
            present, rows[begin:end] - text, columns[begin:end], begin, offset, num_heads
        )
        to_texts.append(to_text)
        absents.append(absent)
        to_tokens.append(to_token)
        begin = end
        offset += present.numel() * num_heads
        text += count
    return to_texts, absents, torch.cat(to_tokens)


@compiled
def _product(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return inputs times packed weights, and the bias, in blocks."""
    parts = [
        torch.ops.mkldnn._linear_pointwise(block, weight, bias, "none", [], "")
        for block in torch.split(inputs, 256)
    ]
    return torch.cat(parts)


@compiled
def _rest_of_layer(hidden: Tensor, attended: Tensor, w: list[Tensor], eps: float) -> Tensor:
    """Return a layer, from its input and what its attention has seen, in blocks."""
    size = hidden.shape[1:]
    parts: list[Tensor] = []
    for i, block in enumerate(torch.split(attended, 256)):
        before = hidden[256 * i : 256 * (i + 1)]
        seen = torch.ops.mkldnn._linear_pointwise(block, w[2], w[3], "none", [], "")
        middle = layer_norm(seen + before, size, w[4], w[5], eps)
        inner = torch.ops.mkldnn._linear_pointwise(middle, w[6], w[7], "gelu", [], "none")
        outer = torch.ops.mkldnn._linear_pointwise(inner, w[8], w[9], "none", [], "")
        parts.append(layer_norm(outer + middle, size, w[10], w[11], eps))
    return torch.cat(parts)


@compiled
def last_layer(
    ids: Tensor,
    mask: Tensor,
    weights: list[Tensor],
    num_layers: int,
    num_heads: int,
    eps: float,
    most_tokens: int,
    of_first: bool,
) -> Tensor:
    """Return the last layer of each token, or of first tokens alone (Vaswani et al. 2017, 3.1).

    Args:
        ids: (text, token) token ids, padded on the right.
        mask: (text, token) 1 for a token, 0 for padding.
        weights: Of `UnpaddedBert`.
        num_layers: Of the encoder.
        num_heads: Of each layer.
        eps: Of layer norms.
        most_tokens: As for `models.encoders.cpu.attention.weighted_values`.
        of_first: Whether only first tokens are asked for.
    """
    num_texts, num_columns = ids.shape
    is_token = mask.ne(0)
    is_token[:, 0] = True  # a text without any token is read as one of padding
    lengths = is_token.sum(1)
    rows, columns = is_token.nonzero().unbind(1)
    num_tokens = rows.numel()
    num_rest = num_tokens % 256
    filling = [0, (-num_rest) % (8 if num_rest <= 64 else 16)]
    dim = weights[0].shape[1]
    size = dim // num_heads

    to_texts, absents, to_tokens = _groups(is_token, lengths, rows, columns, num_heads)
    back = pad(to_tokens, [0, filling[1] * num_heads])
    first = pad((lengths.cumsum(0) - lengths), [0, (-num_texts) % 8])

    hidden = weights[0].index_select(0, pad(ids[rows, columns], filling))
    hidden = hidden + weights[1].index_select(0, pad(columns, filling))
    hidden = layer_norm(hidden, [dim], weights[2], weights[3], eps)
    for i in range(num_layers):
        w = weights[4 + 12 * i : 16 + 12 * i]
        triples = _product(hidden, w[0], w[1]).view(-1, size)
        seen: list[Tensor] = []
        for to_text, absent in zip(to_texts, absents):  # noqa: B905  # PyTorch's has no `strict`
            count, width = absent.shape[0], absent.shape[3]
            fetched = triples.index_select(0, to_text).view(3, count, num_heads, width, size)
            query, key, value = fetched.unbind(0)
            found = _weighted_values(query, key, value, absent, float(size) ** -0.5, most_tokens)
            seen.append(found.view(-1, size))
        attended = torch.cat(seen).index_select(0, back).view(-1, dim)
        if of_first and i == num_layers - 1:
            attended, hidden = attended.index_select(0, first), hidden.index_select(0, first)
        hidden = _rest_of_layer(hidden, attended, w, eps)
    if of_first:
        return hidden[:num_texts]
    padded = torch.zeros(num_texts, num_columns, dim, dtype=hidden.dtype)
    padded[rows, columns] = hidden[:num_tokens]
    return padded
