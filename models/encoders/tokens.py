"""Token ids of texts, alone and in padded batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from longtail.models.encoders.families import Tokenizer
from longtail.models.encoders.pretrained import num_leading


@dataclass(frozen=True, slots=True)
class Prefixes:
    """What an encoder was trained to find before a text, such as "query: ".

    Attributes:
        document: Put before each document.
        label: Put before each label's text.
    """

    document: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Texts as token ids, padded to the longest.

    Attributes:
        ids: (text, token) integers.
        mask: (text, token): 1 for a token, 0 for padding.
    """

    ids: Tensor
    mask: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, stop: int) -> TokenBatch:
        """Return the texts of a range, without the padding that none of them needs."""
        width = int(self.mask[start:stop].sum(dim=1).max())
        return TokenBatch(self.ids[start:stop, :width], self.mask[start:stop, :width])


@dataclass(frozen=True, slots=True)
class TokenizedTexts:
    """Token ids of many texts in one flat array, each cut to what the encoder reads.

    Attributes:
        ids: Token ids of all texts, one after the other, special tokens included.
        offsets: Text i has the ids from offsets[i] up to offsets[i + 1].
        num_tokens: Tokens that each text has before it is cut, special tokens included.
        num_known: Tokens kept of each text that are neither special nor the unknown token.
    """

    ids: Int64[np.ndarray, total]
    offsets: Int64[np.ndarray, boundary]
    num_tokens: Int64[np.ndarray, text]
    num_known: Int64[np.ndarray, text]

    def __len__(self) -> int:
        return len(self.num_tokens)

    @property
    def lengths(self) -> Int64[np.ndarray, text]:
        """Tokens kept of each text, special tokens included."""
        return np.diff(self.offsets)

    @classmethod
    def joined(cls, parts: Sequence[TokenizedTexts]) -> TokenizedTexts:
        """Return the texts of several, one after the other."""
        return cls(
            ids=np.concatenate([part.ids for part in parts]),
            offsets=_boundaries(np.concatenate([part.lengths for part in parts])),
            num_tokens=np.concatenate([part.num_tokens for part in parts]),
            num_known=np.concatenate([part.num_known for part in parts]),
        )

    def take(self, rows: Sequence[int]) -> TokenizedTexts:
        """Return some of the texts, in the order given."""
        parts = [self.ids[self.offsets[row] : self.offsets[row + 1]] for row in rows]
        return TokenizedTexts(
            ids=np.concatenate(parts),
            offsets=np.cumsum([0, *map(len, parts)], dtype=np.int64),
            num_tokens=self.num_tokens[list(rows)],
            num_known=self.num_known[list(rows)],
        )

    def first(self, count: int) -> TokenizedTexts:
        """Return the first texts alone."""
        offsets = self.offsets[: count + 1]
        return TokenizedTexts(
            ids=self.ids[: offsets[-1]],
            offsets=offsets,
            num_tokens=self.num_tokens[:count],
            num_known=self.num_known[:count],
        )

    def batch(self, rows: Int64[np.ndarray, row], pad_id: int, device: str) -> TokenBatch:
        """Return some of the texts as one padded batch."""
        lengths = self.lengths[rows]
        lengths = np.maximum(lengths, 1)  # a text without any token is read as one of padding
        width = int(lengths.max())
        ids = np.full((len(rows), width), pad_id, dtype=np.int64)  # (row, token)
        for i, row in enumerate(rows):
            own = self.ids[self.offsets[row] : self.offsets[row + 1]]
            ids[i, : len(own)] = own
        mask = np.arange(width)[None, :] < lengths[:, None]  # (row, token)
        return TokenBatch(
            ids=torch.from_numpy(ids).to(device),
            mask=torch.from_numpy(mask.astype(np.int64)).to(device),
        )


def _boundaries(counts: Int64[np.ndarray, count]) -> Int64[np.ndarray, boundary]:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)])


def tokenize_texts(
    tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int, prefix: str = ""
) -> TokenizedTexts:
    """Return the token ids of texts, each cut to its first `max_tokens`.

    The special tokens at both ends ([CLS] and [SEP] in BERT) are kept and count.

    Args:
        tokenizer: The encoder's.
        texts: Any.
        max_tokens: That the encoder reads of a text, special ones and the prefix included.
        prefix: Put before each text, as the encoder was trained with; its tokens are read and
            counted, but known ones of it are not among those of the text.
    """
    if prefix:
        texts = [prefix + text for text in texts]
    num_prefix = _num_known(tokenizer, prefix) if prefix else 0
    num_special = tokenizer.num_special_tokens_to_add()
    num_last = num_special - min(num_special, num_leading(tokenizer))
    width = max(0, max_tokens - num_special)
    unknown = frozenset(tokenizer.all_special_ids)  # the unknown token is one of them
    kept, num_tokens, num_known = [], [], []
    for encoding in tokenizer.backend_tokenizer.encode_batch_fast(list(texts)):
        ids = encoding.ids
        start, end = num_special - num_last, len(ids) - num_last
        body = ids[start:end][:width]
        kept.append(np.array([*ids[:start], *body, *ids[end:]], dtype=np.int64))
        num_tokens.append(len(ids))
        num_known.append(max(0, sum(token not in unknown for token in body) - num_prefix))
    return TokenizedTexts(
        ids=np.concatenate(kept) if kept else np.empty(0, dtype=np.int64),
        offsets=_boundaries(np.array([len(ids) for ids in kept], dtype=np.int64)),
        num_tokens=np.array(num_tokens, dtype=np.int64),
        num_known=np.array(num_known, dtype=np.int64),
    )


def _num_known(tokenizer: Tokenizer, text: str) -> int:
    """Return how many tokens of a text are neither special nor the unknown token.

    White space at its end is left out: tokenizers count it to the word behind.
    """
    ids = tokenizer.backend_tokenizer.encode(text.rstrip(), add_special_tokens=False).ids
    return len(ids) - sum(token in tokenizer.all_special_ids for token in ids)
