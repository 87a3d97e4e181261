"""The forward pass of `models.encoders.cpu.unpadded`, in PyTorch's own code; importing compiles it.

oneDNN compiles its kernels for each shape and caches some dozens, so there must be few shapes.
All that is done token by token is done in blocks of 256 tokens and a last one of a multiple of 8 or
16, and attention in groups of 4, 2 and 1 texts, each padded to a multiple of 16 tokens. That also
keeps what is passed on in a processor's own cache.

Shapes in the comments: row, a token of any text, all texts one after the other, and a few more rows
that fill up the last block; group, the texts whose attention is computed at once; place, a token's
index in its text; dim = head x size.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, pad, scaled_dot_product_attention

from longtail.models.encoders.cpu.torch_internals import compiled, linear, linear_gelu

_linear = compiled(linear)
_linear_gelu = compiled(linear_gelu)


@compiled
def _attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float, most_tokens: int
) -> Tensor:
    """Return softmax(scale query key^T + mask) value (Vaswani et al. 2017, Eq. 1).

    PyTorch's fused kernel multiplies matrices for each text and head by itself. For about ten
    tokens each such call does 1 us of work and has 1 us of overhead, a quarter of an encoder's
    time. Here it is one product for all texts and heads. In bfloat16 the scores are rounded
    between product and softmax, which the fused kernel does not do; the softmax is float32's.

    Args:
        query: (group, head, place, size).
        key: As the query.
        value: As the query.
        mask: (group, 1, 1, place) in the precision of the query.
        scale: Factor of the products.
        most_tokens: Longest text in tokens; for longer ones PyTorch's fused kernel does it.
    """
    num_texts, num_heads, num_tokens, size = query.shape
    if num_tokens > most_tokens:
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    flat = num_texts * num_heads
    queries = query.reshape(flat, num_tokens, size)
    keys = key.reshape(flat, num_tokens, size)
    scores = torch.bmm(queries, keys.transpose(1, 2)).float().mul_(scale)  # (flat, place, place)
    scores = scores.view(num_texts, num_heads, num_tokens, num_tokens).add_(mask)
    weights = torch.softmax(scores, dim=-1).to(value.dtype).view(flat, num_tokens, num_tokens)
    values = torch.bmm(weights, value.reshape(flat, num_tokens, size))  # (flat, place, size)
    return values.view(num_texts, num_heads, num_tokens, size)


@compiled
def _group(
    present: Tensor,
    text: Tensor,
    place: Tensor,
    begin: int,
    offset: int,
    num_heads: int,
    kind: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gather indices for the attention of some texts, its mask, and the inverse indices.

    A head of a token is a row of its own wherever rows are fetched: (row, query key value, head)
    where tokens stand one after the other, and (query key value, group, head, place) in attention.

    Args:
        present: (group, place) Whether there is a token.
        text: (row of the group,) Its text in the group.
        place: (row of the group,) Its place there.
        begin: Tokens of the texts before.
        offset: Rows of the attention of the texts before.
        num_heads: Number of heads of each layer.
        kind: Any tensor with the dtype of the weights.
    """
    count, width = present.shape
    heads = torch.arange(3 * num_heads)  # of query, key and value
    # The row of each place: how many tokens come before it. Padding gets its neighbour's, which the
    # mask leaves out.
    tokens = (present.view(-1).cumsum(0) + (begin - 1)).clamp_(0).view(1, count, 1, width)
    to_texts = tokens * (3 * num_heads) + heads.view(3, 1, num_heads, 1)  # (3, group, head, place)
    mask = torch.where(present, 0.0, -1e30).to(kind.dtype).view(count, 1, 1, width)
    # Back from (group, head, place), flat: (text num_heads + head) width + place.
    to_rows = (text * num_heads).view(-1, 1) + heads[:num_heads]  # (row of the group, head)
    to_rows = to_rows * width + (place + offset).view(-1, 1)
    return to_texts.view(-1), mask, to_rows.view(-1)


@compiled
def _groups(
    is_token: Tensor, lengths: Tensor, texts: Tensor, places: Tensor, num_heads: int, kind: Tensor
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Return what `_group` does of each group of texts, and all ways back in one.

    Args:
        is_token: (text, place) Whether it is no padding.
        lengths: (text,) Tokens of each.
        texts: (row,) The text of each token.
        places: (row,) And its place there.
        num_heads: Number of heads of each layer.
        kind: Any tensor with the dtype of the weights.
    """
    to_texts: list[Tensor] = []
    masks: list[Tensor] = []
    to_rows: list[Tensor] = []
    # Invariant: `begin` tokens, and `offset` rows of attention, are of the texts before `text`.
    text, begin, offset = 0, 0, 0
    while text < len(lengths):
        left = len(lengths) - text
        count = 4 if left >= 4 else (2 if left >= 2 else 1)
        of_group = lengths[text : text + count]
        longest = int(of_group.max())
        present = pad(is_token[text : text + count, :longest], [0, (-longest) % 16])
        end = begin + int(of_group.sum())
        to_text, mask, to_row = _group(
            present, texts[begin:end] - text, places[begin:end], begin, offset, num_heads, kind
        )
        to_texts.append(to_text)
        masks.append(mask)
        to_rows.append(to_row)
        begin = end
        offset += present.numel() * num_heads
        text += count
    return to_texts, masks, torch.cat(to_rows)


@compiled
def _queries_keys_values(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return hidden W^T + b of query, key and value at once, in blocks: (row, 3 dim)."""
    parts = [_linear(block, weight, bias) for block in torch.split(hidden, 256)]
    return torch.cat(parts)


@compiled
def _rest_of_layer(hidden: Tensor, attended: Tensor, weights: list[Tensor], eps: float) -> Tensor:
    """Return a layer, from its input and what its attention has found, in blocks: (row, dim).

    middle = norm(hidden + W_o attended + b_o); norm(middle + W_2 gelu(W_1 middle + b_1) + b_2):
    Vaswani et al. 2017, 3.1 and Eq. 2, with the GELU of BERT.
    """
    w_o, b_o, gain_1, shift_1, w_1, b_1, w_2, b_2, gain_2, shift_2 = weights
    dim = hidden.shape[1:]
    parts: list[Tensor] = []
    for i, block in enumerate(torch.split(attended, 256)):
        before = hidden[256 * i : 256 * (i + 1)]  # the same rows
        middle = layer_norm(_linear(block, w_o, b_o) + before, dim, gain_1, shift_1, eps)
        inner = _linear_gelu(middle, w_1, b_1)  # (256, inner)
        outer = _linear(inner, w_2, b_2)
        parts.append(layer_norm(outer + middle, dim, gain_2, shift_2, eps))
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
        ids: (text, place) token ids, padded on the right.
        mask: (text, place) 1 for a token, 0 for padding.
        weights: Weights of `UnpaddedBert`: 4 of the embeddings, then 12 of each layer.
        num_layers: The encoder's number of layers.
        num_heads: Number of heads of each layer.
        eps: Epsilon of the layer norms.
        most_tokens: As for `_attention`.
        of_first: Whether only first tokens are asked for.

    Returns:
        (text, place, dim), zeros in place of padding; of first tokens (text, dim).
    """
    num_texts, num_places = ids.shape
    is_token = mask.ne(0)  # (text, place)
    is_token[:, 0] = True  # a text without any token is read as one of padding
    lengths = is_token.sum(1)
    texts, positions = is_token.nonzero().unbind(1)  # (row,) each: the tokens, text by text
    num_tokens = texts.numel()
    num_rest = num_tokens % 256
    filling = [0, (-num_rest) % (8 if num_rest <= 64 else 16)]  # rows that no text has
    dim = weights[0].shape[1]
    size = dim // num_heads

    to_texts, masks, to_rows = _groups(is_token, lengths, texts, positions, num_heads, weights[0])
    back = pad(to_rows, [0, filling[1] * num_heads])  # (row head,)
    # The row of each first token: how many tokens the texts before have.
    first = pad((lengths.cumsum(0) - lengths), [0, (-num_texts) % 8])

    # Embeddings: norm(word + position and kind), (row, dim).
    hidden = weights[0].index_select(0, pad(ids[texts, positions], filling))
    hidden = hidden + weights[1].index_select(0, pad(positions, filling))
    hidden = layer_norm(hidden, [dim], weights[2], weights[3], eps)
    for i in range(num_layers):
        of_layer = weights[4 + 12 * i : 16 + 12 * i]
        triples = _queries_keys_values(hidden, of_layer[0], of_layer[1]).view(-1, size)
        attended_groups: list[Tensor] = []  # (group head place, size) of each group
        for to_text, absent in zip(to_texts, masks):  # noqa: B905  # PyTorch's has no `strict`
            count, width = absent.shape[0], absent.shape[3]
            fetched = triples.index_select(0, to_text).view(3, count, num_heads, width, size)
            query, key, value = fetched.unbind(0)  # (group, head, place, size)
            values = _attention(query, key, value, absent, float(size) ** -0.5, most_tokens)
            attended_groups.append(values.view(-1, size))
        attended = torch.cat(attended_groups).index_select(0, back).view(-1, dim)  # (row, dim)
        if of_first and i == num_layers - 1:  # nothing after this layer sees the other tokens
            attended, hidden = attended.index_select(0, first), hidden.index_select(0, first)
        hidden = _rest_of_layer(hidden, attended, of_layer[2:], eps)
    if of_first:
        return hidden[:num_texts]
    padded = torch.zeros(num_texts, num_places, dim, dtype=hidden.dtype)
    padded[texts, positions] = hidden[:num_tokens]
    return padded
