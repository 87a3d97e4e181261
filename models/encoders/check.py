"""Whether an encoder can be used: tried on a few tokens when it is loaded.

In a model that reads from left to right the first token sees no other, so all documents whose
vector is that token's would get the same; and some encoders can't compute in bfloat16. Neither is
written in a configuration, so both are tried.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from longtail.models.encoders.families import (
    AutoClass,
    Transformer,
    VectorHead,
    is_transformer,
    num_positions,
)
from longtail.models.errors import ConfigError

logger = logging.getLogger(__name__)
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

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def twin(module: ModuleT) -> ModuleT:
    """Return a copy that shares the weights but nothing else.

    Some encoders change themselves for good when they read a short batch: BigBird switches to full
    attention. A trial on a twin leaves the encoder as it is.
    """
    shared = (*module.parameters(), *module.buffers())
    return copy.deepcopy(module, {id(tensor): tensor for tensor in shared})


def reason_of(error: BaseException) -> str:
    """Return the type of an error and the first line of its message, for a sentence."""
    first_line = (str(error).strip().splitlines() or ["no message"])[0]
    return f"{type(error).__name__}: {first_line[:200]}"


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


def check_last_layer(transformer: Transformer, folder: Path) -> None:
    """Refuse a model that can't read token ids alone, or has no vector for each.

    Args:
        transformer: In float32 and evaluation mode; it is left as it is.
        folder: Where it was loaded from, for the message.
    """
    where = f"encoder in {str(folder)!r} ({type(transformer).__name__})"
    advice = "use an encoder for texts such as BERT, or 'packaged'"
    try:
        with torch.no_grad():
            hidden = _last_layer(twin(transformer), _trial_batch(transformer))
    except Exception as error:  # a foreign model may raise anything
        raise ConfigError(
            f"{where}: it can't compute vectors from token ids ({reason_of(error)}); {advice}"
        ) from error
    dim = getattr(transformer.config, "hidden_size", None)
    if hidden.shape[2:] != (dim,):
        raise ConfigError(
            f"{where}: its last layer has the shape {tuple(hidden.shape)}, expected "
            f"{dim} numbers a token (hidden_size); {advice}"
        )
    if not hidden.isfinite().all():
        raise ConfigError(
            f"{where}: its vectors are not finite numbers, so its weights are broken; get them "
            "again, or use another encoder"
        )


def is_causal(transformer: Transformer) -> bool:
    """Return whether a model reads from left to right, so that its first token sees no other.

    Args:
        transformer: That `check_last_layer` accepts; it is left as it is.
    """
    with torch.no_grad():
        hidden = _last_layer(twin(transformer), _trial_batch(transformer))
    first, second = hidden[:, 0]
    return not bool((first - second).norm() > _LEAST_DIFFERENCE * first.norm())


def check_pooling(transformer: Transformer, head: VectorHead, folder: Path) -> None:
    """Refuse to take the first token of a text for its vector where that token sees no other.

    Args:
        transformer: That `check_last_layer` accepts; it is left as it is.
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


def usable_dtype(transformer: nn.Module, dtype: torch.dtype, *, is_chosen: bool) -> torch.dtype:
    """Return what an encoder's weights can be turned into: a dtype, or else float32.

    Args:
        transformer: It is left as it is. What stands in for a transformer is not tried.
        dtype: What is wanted.
        is_chosen: Whether the dtype was chosen automatically, so that there may be another.
    """
    if not is_transformer(transformer):
        return dtype
    failure = failure_in(transformer, dtype)
    if failure is None:
        return dtype
    name = str(dtype).removeprefix("torch.")
    told = f"encoder {type(transformer).__name__} can't compute in {name} ({failure})"
    if not is_chosen:
        raise ConfigError(f"precision is {name!r}, but {told}; set precision to 'float32'")
    logger.warning("%s: it computes in float32", told)
    return torch.float32


def failure_in(transformer: Transformer, dtype: torch.dtype) -> str | None:
    """Return why an encoder whose weights are turned into a dtype can't be used; None: it can."""
    if dtype == torch.float32:
        return None
    named = (*transformer.named_parameters(), *transformer.named_buffers())  # shared ones once
    weights = {name: each.to(dtype) if each.is_floating_point() else each for name, each in named}
    try:
        with torch.no_grad():
            hidden = _last_layer(twin(transformer), _trial_batch(transformer), weights)
    except Exception as error:  # noqa: BLE001  # a foreign model may raise anything
        return reason_of(error)
    return None if hidden.isfinite().all() else "its vectors are not finite numbers"


def _trial_batch(transformer: Transformer) -> dict[str, Tensor]:
    """Return two texts of the same first token, and no other in common."""
    config = transformer.config
    num_ids = num_token_ids(transformer)
    ids = [i for i in range(2, num_ids) if i != getattr(config, "pad_token_id", None)]
    width = max(2, min(_NUM_TOKENS, num_positions(transformer), (len(ids) + 1) // 2))
    texts = [ids[:width], [ids[0], *ids[width : 2 * width - 1]]]
    batch = torch.tensor(texts, device=transformer.device)
    return {"input_ids": batch, "attention_mask": torch.ones_like(batch)}


def _last_layer(
    transformer: Transformer,
    batch: dict[str, Tensor],
    weights: Mapping[str, Tensor] | None = None,
) -> Tensor:
    found = functional_call(transformer, dict(weights or {}), (), batch)
    last: Tensor = found.last_hidden_state
    return last
