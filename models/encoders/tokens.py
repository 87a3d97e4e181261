"""Token ids of texts, in batches and in overlapping windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from transformers import TokenizersBackend

from models.encoders.pretrained import num_leading
from models.windows import WindowPool, Windows


@dataclass(frozen=True, slots=True)
class WindowRows:
    """Which rows of a batch are the windows of which text.

    Attributes:
        rows: (text, most) integers: the windows of each text, filled up with its first one.
        counts: (text,) integers: windows of each text; they follow each other.
        pool: What is made of their vectors.
    """

    rows: Tensor
    counts: Tensor
    pool: WindowPool

    @classmethod
    def of(cls, counts: Int64[np.ndarray, text], pool: WindowPool, device: str) -> WindowRows:
        """Return those of texts with so many windows each, one text after the other."""
        places = np.arange(counts.max())[None, :]
        rows = (np.cumsum(counts) - counts)[:, None] + np.where(places < counts[:, None], places, 0)
        return cls(torch.from_numpy(rows).to(device), torch.from_numpy(counts).to(device), pool)

    def pooled(self, vectors: Float[Tensor, "window dim"]) -> Float[Tensor, "text dim"]:
        """Return the vector of each text, of those of its windows."""
        found = vectors[self.rows].float()  # (text, most, dim)
        if self.pool == "max":
            return found.amax(dim=1)
        places = torch.arange(self.rows.shape[1], device=found.device)
        is_real = (places < self.counts[:, None]).to(found.dtype)
        return (found * is_real[:, :, None]).sum(dim=1) / self.counts[:, None]


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Texts as token ids, padded to the longest.

    Attributes:
        ids: (window, token) integers.
        mask: (window, token): 1 for a token, 0 for padding.
        windows: Which windows are whose; None: each text has one.
    """

    ids: Tensor
    mask: Tensor
    windows: WindowRows | None = None

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.ids if self.windows is None else self.windows.counts)

    def part(self, start: int, stop: int) -> TokenBatch:
        """Return the texts of a range, without the padding that none of them needs."""
        windows = None
        if self.windows is not None:
            rows, counts = self.windows.rows[start:stop], self.windows.counts[start:stop]
            start, stop = int(rows[0, 0]), int(rows[-1, 0] + counts[-1])
            windows = WindowRows(rows - start, counts, self.windows.pool)
        width = int(self.mask[start:stop].sum(dim=1).max())
        return TokenBatch(self.ids[start:stop, :width], self.mask[start:stop, :width], windows)


@dataclass(frozen=True, slots=True)
class TokenizedTexts:
    """Token ids of many texts in one flat array, each cut to the encoder's window or windows.

    Attributes:
        ids: Token ids of all texts, one after the other, special tokens included.
        offsets: Window i has the ids from offsets[i] up to offsets[i + 1].
        num_tokens: Tokens that each text has before it is cut, special tokens included.
        num_read: Those of them in the window or windows, each counted once.
        num_known: Those of them that are neither special nor the unknown token.
        firsts: Text i has the windows from firsts[i] up to firsts[i + 1]; None: one each.
        pool: What is made of the vectors of a text's windows.
    """

    ids: Int64[np.ndarray, total]
    offsets: Int64[np.ndarray, boundary]
    num_tokens: Int64[np.ndarray, text]
    num_read: Int64[np.ndarray, text]
    num_known: Int64[np.ndarray, text]
    firsts: Int64[np.ndarray, text_boundary] | None = None
    pool: WindowPool = "mean"

    def __len__(self) -> int:
        return len(self.num_tokens)

    @property
    def lengths(self) -> Int64[np.ndarray, text]:
        """Tokens kept of each text, in all its windows."""
        offsets = self.offsets if self.firsts is None else self.offsets[self.firsts]
        return np.diff(offsets)

    @classmethod
    def joined(cls, parts: Sequence[TokenizedTexts]) -> TokenizedTexts:
        """Return the texts of several, one after the other; all read in windows, or none."""
        counts = [np.diff(part.firsts) for part in parts if part.firsts is not None]
        return cls(
            ids=np.concatenate([part.ids for part in parts]),
            offsets=_boundaries(np.concatenate([np.diff(part.offsets) for part in parts])),
            num_tokens=np.concatenate([part.num_tokens for part in parts]),
            num_read=np.concatenate([part.num_read for part in parts]),
            num_known=np.concatenate([part.num_known for part in parts]),
            firsts=_boundaries(np.concatenate(counts)) if counts else None,
            pool=parts[0].pool,
        )

    def take(self, rows: Sequence[int]) -> TokenizedTexts:
        """Return some of the texts, in the order given."""
        windows, counts = self._windows(np.array(rows, dtype=np.int64))
        parts = [self.ids[self.offsets[each] : self.offsets[each + 1]] for each in windows]
        return TokenizedTexts(
            ids=np.concatenate(parts),
            offsets=np.cumsum([0, *map(len, parts)], dtype=np.int64),
            num_tokens=self.num_tokens[list(rows)],
            num_read=self.num_read[list(rows)],
            num_known=self.num_known[list(rows)],
            firsts=None if counts is None else _boundaries(counts),
            pool=self.pool,
        )

    def first(self, count: int) -> TokenizedTexts:
        """Return the first texts alone."""
        firsts = None if self.firsts is None else self.firsts[: count + 1]
        offsets = self.offsets[: (count if firsts is None else int(firsts[-1])) + 1]
        return TokenizedTexts(
            ids=self.ids[: offsets[-1]],
            offsets=offsets,
            num_tokens=self.num_tokens[:count],
            num_read=self.num_read[:count],
            num_known=self.num_known[:count],
            firsts=firsts,
            pool=self.pool,
        )

    def batch(self, rows: Int64[np.ndarray, row], pad_id: int, device: str) -> TokenBatch:
        """Return some of the texts as one padded batch."""
        windows, counts = self._windows(rows)
        lengths = np.diff(self.offsets)[windows]
        width = int(lengths.max())
        ids = np.full((len(windows), width), pad_id, dtype=np.int64)
        for i, window in enumerate(windows):
            ids[i, : lengths[i]] = self.ids[self.offsets[window] : self.offsets[window + 1]]
        mask = np.arange(width)[None, :] < lengths[:, None]
        windows_of_texts = None
        if counts is not None and counts.max() > 1:
            windows_of_texts = WindowRows.of(counts, self.pool, device)
        return TokenBatch(
            ids=torch.from_numpy(ids).to(device),
            mask=torch.from_numpy(mask.astype(np.int64)).to(device),
            windows=windows_of_texts,
        )

    def _windows(
        self, rows: Int64[np.ndarray, row]
    ) -> tuple[Int64[np.ndarray, window], Int64[np.ndarray, row] | None]:
        """Return the windows of some texts, text by text, and how many each has; None: one each."""
        if self.firsts is None:
            return rows, None
        counts = np.diff(self.firsts)[rows]
        windows = [np.arange(self.firsts[row], self.firsts[row + 1]) for row in rows]
        return np.concatenate(windows), counts


def _boundaries(counts: Int64[np.ndarray, count]) -> Int64[np.ndarray, boundary]:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)])


def tokenize_texts(
    tokenizer: TokenizersBackend,
    texts: Sequence[str],
    max_tokens: int,
    windows: Windows | None = None,
) -> TokenizedTexts:
    """Return the token ids of texts, each cut to its first `max_tokens` (the last is [SEP]).

    Args:
        tokenizer: The encoder's.
        texts: Any.
        max_tokens: That the encoder reads at once, special ones included.
        windows: How longer texts are read; every window has the special tokens of a text. None: to
            the end of the first.
    """
    num_special = tokenizer.num_special_tokens_to_add()
    num_last = num_special - min(num_special, num_leading(tokenizer))
    width = max(0, max_tokens - num_special)
    unknown = frozenset(tokenizer.all_special_ids)  # the unknown token is one of them
    kept, counts, num_tokens, num_read, num_known = [], [], [], [], []
    for encoding in tokenizer.backend_tokenizer.encode_batch_fast(list(texts)):
        ids = encoding.ids
        num_tokens.append(len(ids))
        spans = [(0, min(width, len(ids) - num_special))]
        if windows is not None:
            spans = windows.spans(len(ids) - num_special, width)
        counts.append(len(spans))
        body = ids[num_special - num_last : len(ids) - num_last]
        num_read.append(num_special + spans[-1][1])
        num_known.append(sum(token not in unknown for token in body[: spans[-1][1]]))
        start, end = ids[: num_special - num_last], ids[len(ids) - num_last :]
        kept += [np.array(start + body[slice(*span)] + end, dtype=np.int64) for span in spans]
    return TokenizedTexts(
        ids=np.concatenate(kept) if kept else np.empty(0, dtype=np.int64),
        offsets=_boundaries(np.array([len(ids) for ids in kept], dtype=np.int64)),
        num_tokens=np.array(num_tokens, dtype=np.int64),
        num_read=np.array(num_read, dtype=np.int64),
        num_known=np.array(num_known, dtype=np.int64),
        firsts=None if windows is None else _boundaries(np.array(counts, dtype=np.int64)),
        pool="mean" if windows is None else windows.pool,
    )
