"""What differs between the model families of encoders: which half is read, how many positions."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import nn

from longtail.models.encoders.types import Transformer
from longtail.models.errors import ConfigError

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
    """Return what loads the encoder of a configuration: of T5 and its kin, the encoder half.

    Raises:
        ConfigError: It is an encoder-decoder whose encoder half can't be saved and loaded alone.
    """
    from transformers import AutoModel, AutoModelForTextEncoding
    from transformers.models.auto.modeling_auto import MODEL_FOR_TEXT_ENCODING_MAPPING

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
    """Refuse a folder without a tokenizer: Transformers would make one that knows no word.

    Raises:
        ConfigError: None of the files that hold a vocabulary is there, or none that can be read.
    """
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
