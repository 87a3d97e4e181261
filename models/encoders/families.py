"""What differs between encoders: families of models, their types, and how a vector is made."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize

from longtail.models.errors import ConfigError
from longtail.models.names import Activation, Pooling

if TYPE_CHECKING:
    from transformers import PreTrainedModel, TokenizersBackend

    Transformer = PreTrainedModel
    Tokenizer = TokenizersBackend
else:
    Transformer = nn.Module
    Tokenizer = Any


@dataclass(frozen=True, slots=True)
class LastLayer:
    """The output of an encoder, by the name that Transformers gives it."""

    last_hidden_state: Float[Tensor, "batch token dim"]


def is_transformer(module: nn.Module) -> TypeGuard[Transformer]:
    """Return whether a module is an encoder with its weights, not one that stands in for it."""
    return hasattr(module, "get_input_embeddings")


_VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json")
"""Any of these files makes a fast tokenizer."""
_PIECES = "*.model"
"""And so do these, where there is the package that reads them."""
_READS_PIECES = "sentencepiece"

BERT_LIKE = ("bert", "camembert", "roberta", "xlm-roberta")
"""Model types of BERT's architecture."""

AutoClass = Any
"""`AutoModel` of Transformers, or `AutoModelForTextEncoding`."""


def auto_class_of(config: Any, folder: Path) -> AutoClass:
    """Return what loads the encoder of a configuration: of T5 and its kin, the encoder half."""
    from transformers import AutoModel, AutoModelForTextEncoding
    from transformers.models.auto.modeling_auto import MODEL_FOR_TEXT_ENCODING_MAPPING

    if config.model_type == "fnet":
        raise ConfigError(
            f"encoder in {str(folder)!r}: FNet reads padding as text, so that an answer would "
            "depend on the texts beside it; use an encoder such as BERT, or 'packaged'"
        )
    if type(config) in MODEL_FOR_TEXT_ENCODING_MAPPING:  # others than T5: the same as below
        return AutoModelForTextEncoding
    if not getattr(config, "is_encoder_decoder", False):
        return AutoModel
    raise ConfigError(
        f"encoder in {str(folder)!r}: its model type {config.model_type!r} is an encoder-decoder, "
        "whose encoder half can't be loaded alone; use an encoder such as BERT, an "
        "encoder-decoder of the T5 family, or 'packaged'"
    )


def check_tokenizer_files(folder: Path) -> None:
    """Refuse a folder without a tokenizer: Transformers would make one that knows no word."""
    if any((folder / name).is_file() for name in _VOCABULARIES):
        return
    pieces = sorted(path.name for path in folder.glob(_PIECES))
    if not pieces:
        raise ConfigError(
            f"encoder in {str(folder)!r}: the folder has no tokenizer; expected tokenizer.json "
            "(or vocab.txt, or vocab.json with merges.txt); write it with "
            "tokenizer.save_pretrained(folder)"
        )
    if find_spec(_READS_PIECES) is None:
        raise ConfigError(
            f"encoder in {str(folder)!r}: its tokenizer is {pieces[0]!r} alone, which only the "
            f"package {_READS_PIECES!r} reads; install it, or write tokenizer.json where it is "
            "installed, with tokenizer.save_pretrained(folder)"
        )


def num_positions(transformer: Transformer) -> int:
    """Return how many tokens, special ones included, the encoder has positions for.

    Families that count positions from the padding id + 1 (RoBERTa and its kin) declare the padding
    id in their table of position embeddings; those rows can't be used.
    """
    positions = getattr(transformer.config, "max_position_embeddings", None)
    if positions is None or positions <= 0:  # relative positions have no end; XLNet says -1
        return sys.maxsize
    offset = max((_first_position(*module) for module in transformer.named_modules()), default=0)
    return int(positions) - offset


def _first_position(name: str, module: nn.Module) -> int:
    """Return the row of the first token in a table of position embeddings; 0 for other modules."""
    padding_id = getattr(module, "padding_idx", None)
    if name.rpartition(".")[2] != "position_embeddings" or padding_id is None:
        return 0
    return int(padding_id) + 1


@dataclass(frozen=True, slots=True)
class VectorHead:
    """What a dual encoder does with the last layer of its transformer; the default is DEPL's.

    Attributes:
        document_pooling: What stands for a document (DEPL Eq. 1: [CLS]).
        label_pooling: What stands for a label's text (DEPL Eq. 2: the mean, which does not say
            whether over [CLS] and [SEP] too: "mean" is, "words" is not; Table 7 compares it with
            [CLS]).
        activation: Activation of the pooler's output.
        is_normalized: Whether all vectors get one length, sqrt(dim), so that inner products are
            cosines times dim. At length 1 each number would be tiny, and a classifier over them
            would learn sqrt(dim) times slower than over the output of a layer norm.
    """

    document_pooling: Pooling = "cls"
    label_pooling: Pooling = "mean"
    activation: Activation = "identity"
    is_normalized: bool = False

    def finished(self, vectors: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch dim"]:
        """Return the vectors of texts, from what the pooler makes of them."""
        if self.activation == "tanh":
            vectors = torch.tanh(vectors)
        if self.is_normalized:
            vectors = math.sqrt(vectors.shape[1]) * normalize(vectors, dim=1)
        return vectors


def pooled(
    hidden: Float[Tensor, "batch token dim"], mask: Int[Tensor, "batch token"], pooling: Pooling
) -> Float[Tensor, "batch dim"]:
    """Return what stands for each text of a batch, from the last layer.

    Args:
        hidden: The last layer.
        mask: 1 for a token, 0 for padding, which is on the right; each text has a token.
        pooling: Which tokens count. "words" leaves out the first and the last of each text, which
            are special where this pooling is allowed; a text of no others has their mean.
    """
    if pooling == "cls":
        return hidden[:, 0]
    if pooling == "last":
        rows = torch.arange(len(hidden), device=hidden.device)
        return hidden[rows, mask.sum(dim=1) - 1]
    if pooling == "words":
        mask = _between(mask)
    weights = mask.unsqueeze(-1).to(hidden.dtype)  # (batch, token, 1)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1)


def _between(mask: Int[Tensor, "batch token"]) -> Int[Tensor, "batch token"]:
    """Return the mask without the first and the last token of each text that has others."""
    places = torch.arange(mask.shape[1], device=mask.device)
    is_between = (places > 0) & (places < mask.sum(dim=1, keepdim=True) - 1)
    return torch.where(is_between.any(dim=1, keepdim=True), is_between.to(mask.dtype), mask)
