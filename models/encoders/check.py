"""Whether the files of an encoder can be trusted, and which of its tokens see the others.

In a model that reads from left to right the first token sees no other, so all documents whose
vector is that token's would get the same. No configuration says so: it is tried on a few tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longtail.models.encoders.families import AutoClass, Transformer, VectorHead, num_positions
from longtail.models.errors import ConfigError

_NUM_TOKENS = 8
_MAX_MISSING = 0.5
"""Share of an encoder's weights that its files may lack."""
_MAX_LAYERS = 1000
_MAX_GROWTH = 4
"""A model in float32 over its files: twice for half precision, twice for missing weights."""
_FREE_BYTES = 2**26
"""What a configuration may ask for beyond."""
_LEAST_DIFFERENCE = 1e-6
"""Relative difference of the first token's vectors of two texts; float32 rounds to 6e-8."""


def num_token_ids(transformer: Transformer) -> int:
    """Return how many token ids the encoder has embeddings for."""
    embeddings: Any = transformer.get_input_embeddings()
    return int(embeddings.weight.shape[0])


def check_size(config: Any, auto_class: AutoClass, folder: Path) -> None:
    """Refuse a configuration of a model that is far larger than its files.

    Weights that the files lack are made, so that a number in `config.json` could take any memory.
    """
    num_bytes = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    num_layers = getattr(config, "num_hidden_layers", None)
    if isinstance(num_layers, int) and num_layers > _MAX_LAYERS:
        described = f"{num_layers} layers"
    else:
        with torch.device("meta"):  # makes no numbers
            model: Transformer = auto_class.from_config(config, trust_remote_code=False)
        numbers = sum(each.numel() for each in (*model.parameters(), *model.buffers()))
        if 4 * numbers <= _MAX_GROWTH * num_bytes + _FREE_BYTES:
            return
        described = f"{numbers:,} numbers"
    raise ConfigError(
        f"encoder in {str(folder)!r}: config.json describes a model of {described}, and its "
        f"*.safetensors have {num_bytes:,} bytes; expected those of one model"
    )


def check_padding_id(transformer: Transformer, pad_id: int, folder: Path) -> None:
    """Refuse a tokenizer that pads with a token for which the encoder has no embedding."""
    num_ids = num_token_ids(transformer)
    if pad_id >= num_ids:
        raise ConfigError(
            f"encoder in {str(folder)!r}: its tokenizer pads with the token id {pad_id}, but it "
            f"has embeddings for {num_ids} tokens; put the encoder's own tokenizer beside it"
        )


def check_weights(transformer: Transformer, missing: Collection[str], folder: Path) -> None:
    """Refuse files that lack most of an encoder's weights, which would start at random.

    A few may be missing: many files are without the pooler that BERT has behind its last layer.
    """
    num_weights = len(list(transformer.named_parameters()))
    if len(missing) > _MAX_MISSING * num_weights:
        raise ConfigError(
            f"encoder in {str(folder)!r}: its *.safetensors lack {len(missing)} of the "
            f"{num_weights} weights of {type(transformer).__name__}, {min(missing)!r} among them; "
            "expected those of the model that config.json describes"
        )


def check_finite(transformer: Transformer, folder: Path) -> None:
    """Refuse weights that make no numbers.

    Args:
        transformer: In float32 and evaluation mode; it is left as it is.
        folder: Where it was loaded from, for the message.
    """
    if not _last_layer(transformer).isfinite().all():
        raise ConfigError(
            f"encoder in {str(folder)!r} ({type(transformer).__name__}): its vectors are not "
            "finite numbers, so its weights are broken; get them again, or use another encoder"
        )


def is_causal(transformer: Transformer) -> bool:
    """Return whether a model reads from left to right, so that its first token sees no other."""
    first, second = _last_layer(transformer)[:, 0]
    return not bool((first - second).norm() > _LEAST_DIFFERENCE * first.norm())


def check_pooling(transformer: Transformer, head: VectorHead, folder: Path) -> None:
    """Refuse to take the first token of a text for its vector where that token sees no other.

    Args:
        transformer: It is left as it is.
        head: Whose pooling is checked.
        folder: Where it was loaded from, for the message.
    """
    chosen = {
        "document_pooling": head.document_pooling,
        "retrieval.label_pooling": head.label_pooling,
    }
    names = [name for name, pooling in chosen.items() if pooling == "cls"]
    if names and is_causal(transformer):
        raise ConfigError(
            f"encoder in {str(folder)!r} ({type(transformer).__name__}): {names[0]} is 'cls', and "
            "in this model the first token sees no other (a decoder, which reads from left to "
            "right), so all texts would get the same vector; take 'last', or use a bidirectional "
            "encoder such as BERT"
        )


@torch.no_grad()
def _last_layer(transformer: Transformer) -> Tensor:
    """Return the last layer for two texts of the same first token, and no other in common.

    It is computed by a copy that shares the weights alone: some encoders change themselves for good
    when they read a short batch, as BigBird, which switches to full attention.
    """
    config = transformer.config
    num_ids = num_token_ids(transformer)
    ids = [i for i in range(2, num_ids) if i != getattr(config, "pad_token_id", None)]
    width = max(2, min(_NUM_TOKENS, num_positions(transformer), (len(ids) + 1) // 2))
    texts = [ids[:width], [ids[0], *ids[width : 2 * width - 1]]]
    batch = torch.tensor(texts, device=transformer.device)
    shared = (*transformer.parameters(), *transformer.buffers())
    twin = copy.deepcopy(transformer, {id(tensor): tensor for tensor in shared})
    last: Tensor = twin(input_ids=batch, attention_mask=torch.ones_like(batch)).last_hidden_state
    return last
