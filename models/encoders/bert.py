"""BERT's encoder and tokenizer as a bundle has them, without Transformers, whose import takes 3 s.

Only for inference on CPUs. Where an encoder is of another architecture or its files hold other
weights, Transformers reads it (`longtail.models.encoders.pretrained`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import torch
from jaxtyping import Int
from pydantic import BaseModel, Field
from safetensors import safe_open
from tokenizers import Tokenizer as Backend
from torch import Tensor, nn

from longtail.models.encoders.check import check_last_layer
from longtail.models.encoders.packed_bert import last_layer
from longtail.models.encoders.tokens import TokenBatch
from longtail.models.encoders.types import LastLayer, Tokenizer, Transformer
from longtail.models.files.durable import parse_json
from longtail.models.processor import sees_gpu

_WEIGHTS_NAME = "model.safetensors"
_UNUSED = ("embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias")
_MOST_BYTES = 2**20
_TOKENIZERS = ("BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast", "TokenizersBackend")
"""Classes of Transformers that read texts as `tokenizer.json` says."""
_SPECIAL = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_CHANGES = ("add_bos_token", "add_eos_token", "add_prefix_space", "added_tokens_decoder",
            "additional_special_tokens", "extra_special_tokens")  # fmt: skip
"""Settings by which Transformers changes what `tokenizer.json` says."""
_Size = Annotated[int, Field(strict=True, ge=1, le=2**24)]


class BertConfig(BaseModel):
    """The configuration of a plain BERT, by the names of its `config.json`."""

    model_type: Literal["bert"]
    hidden_act: Literal["gelu"]
    position_embedding_type: Literal["absolute"] = "absolute"
    is_decoder: Literal[False] = False
    add_cross_attention: Literal[False] = False
    hidden_size: _Size
    intermediate_size: _Size
    num_hidden_layers: Annotated[int, Field(strict=True, ge=1, le=1000)]
    num_attention_heads: _Size
    vocab_size: _Size
    max_position_embeddings: _Size
    type_vocab_size: _Size
    layer_norm_eps: Annotated[float, Field(gt=0, lt=1)]
    pad_token_id: Annotated[int, Field(strict=True, ge=0)] = 0


class _Modules(nn.Module):
    """Modules by their names."""

    def __init__(self, /, **modules: nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)


class Bert(nn.Module):
    """BERT's encoder (Devlin et al. 2019), its weights by the names of Transformers.

    Attributes:
        config: Its sizes.
    """

    def __init__(self, config: BertConfig) -> None:
        """Make an encoder of these sizes, with weights that mean nothing."""
        super().__init__()
        self.config = config
        dim = config.hidden_size
        self.embeddings = _Modules(
            word_embeddings=_table(config.vocab_size, dim),
            position_embeddings=_table(config.max_position_embeddings, dim),
            token_type_embeddings=_table(config.type_vocab_size, dim),
            LayerNorm=nn.LayerNorm(dim, config.layer_norm_eps),
            dropout=nn.Identity(),
        )
        layers = nn.ModuleList(_layer(config) for _ in range(config.num_hidden_layers))
        self.encoder = _Modules(layer=layers)

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights."""
        return self.get_input_embeddings().weight.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.get_input_embeddings().weight.device

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the embeddings of token ids."""
        return cast("nn.Embedding", self.embeddings.word_embeddings)

    def forward(
        self, input_ids: Int[Tensor, "batch token"], attention_mask: Int[Tensor, "batch token"]
    ) -> LastLayer:
        """Return the last layer, with zeros in place of padding."""
        return LastLayer(last_layer(self, TokenBatch(input_ids, attention_mask)))


def _table(rows: int, dim: int) -> nn.Embedding:
    # Made of a tensor, as what draws one at random on "meta" imports PyTorch's compiler.
    return nn.Embedding(rows, dim, _weight=torch.empty(rows, dim))


def _layer(config: BertConfig) -> nn.Module:
    dim, inner, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
    attention = _Modules(
        query=nn.Linear(dim, dim),
        key=nn.Linear(dim, dim),
        value=nn.Linear(dim, dim),
        dropout=nn.Dropout(0.0),
    )
    cast("Any", attention).num_attention_heads = config.num_attention_heads
    after, output = (
        _Modules(
            dense=nn.Linear(width, dim), LayerNorm=nn.LayerNorm(dim, eps), dropout=nn.Identity()
        )
        for width in (dim, inner)
    )
    return _Modules(
        attention=_Modules(**{"self": attention, "output": after}),
        intermediate=_Modules(dense=nn.Linear(dim, inner), intermediate_act_fn=nn.GELU()),
        output=output,
    )


def load_encoder(folder: Path) -> Transformer:
    """Return the encoder of a bundle in float32, in evaluation mode; nothing of it can run code.

    Raises:
        ConfigError: The model can't serve as an encoder of texts.
    """
    bert = None if sees_gpu() else read_bert(folder)
    if bert is None:
        from longtail.models.encoders.pretrained import load_transformer

        return load_transformer(folder)
    found = cast("Transformer", bert)
    check_last_layer(found, folder)
    return found


def read_bert(folder: Path) -> Bert | None:
    """Return the encoder of a folder; None: it is no plain BERT, or its weights are others."""
    config = _config(folder / "config.json")
    if config is None or [path.name for path in folder.glob("*.safetensors")] != [_WEIGHTS_NAME]:
        return None
    with torch.device("meta"):  # makes no numbers
        bert = Bert(config)
    wanted = {name: each.shape for name, each in bert.state_dict().items()}
    with safe_open(folder / _WEIGHTS_NAME, framework="pt") as file:
        names = set(file.keys()).difference(_UNUSED)
        shapes = {name: torch.Size(file.get_slice(name).get_shape()) for name in names}
        if shapes != wanted:
            return None
        weights = {name: file.get_tensor(name) for name in wanted}
    if not all(each.is_floating_point() for each in weights.values()):
        return None
    # Copies, as a file may change that is mapped into memory.
    copies = {name: each.to(torch.float32, copy=True) for name, each in weights.items()}
    bert.load_state_dict(copies, assign=True)
    return bert.requires_grad_(requires_grad=False).eval()


def _config(path: Path) -> BertConfig | None:
    try:
        config = BertConfig.model_validate(_read(path))
    except (OSError, ValueError):
        return None
    return None if config.hidden_size % config.num_attention_heads else config


def _read(path: Path) -> Any:
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path.name} is larger than {_MOST_BYTES:,} bytes")
    return parse_json(path.read_bytes())


@dataclass(frozen=True, slots=True)
class PlainTokenizer:
    """The tokenizer of an encoder, its members by the names of Transformers.

    Attributes:
        backend_tokenizer: Neither pads nor cuts.
        pad_token_id: The token for padding; None: there is none.
        all_special_ids: The unknown token among them.
    """

    backend_tokenizer: Backend
    pad_token_id: int | None
    all_special_ids: list[int]

    def __len__(self) -> int:
        """Return the number of tokens."""
        return self.backend_tokenizer.get_vocab_size()

    def num_special_tokens_to_add(self) -> int:
        """Return the number of special tokens around one text."""
        return self.backend_tokenizer.num_special_tokens_to_add(is_pair=False)


def load_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer of a bundle's encoder; it can run no code.

    Raises:
        ConfigError: There is none, or it knows no words.
    """
    found = read_tokenizer(folder)
    if found is None:
        from longtail.models.encoders import pretrained

        return pretrained.load_tokenizer(folder)
    return cast("Tokenizer", found)


def read_tokenizer(folder: Path) -> PlainTokenizer | None:
    """Return the tokenizer of a folder; None: it is of a kind that only Transformers reads."""
    try:
        said = _read(folder / "tokenizer_config.json")
        backend = Backend.from_file(str(folder / "tokenizer.json"))
    except Exception:  # noqa: BLE001  # the tokenizers' own errors are plain exceptions
        return None
    if not isinstance(said, dict) or said.get("tokenizer_class") not in _TOKENIZERS:
        return None
    if any(said.get(name) for name in _CHANGES):
        return None
    ids = {name: _token_id(backend, said[name]) for name in _SPECIAL if said.get(name)}
    special = set(ids.values())
    if None in special or backend.get_vocab_size() <= len(special):
        return None
    backend.no_padding()
    backend.no_truncation()
    return PlainTokenizer(backend, ids.get("pad_token"), sorted(cast("set[int]", special)))


def _token_id(backend: Backend, token: Any) -> int | None:
    content = token.get("content") if isinstance(token, dict) else token
    return backend.token_to_id(content) if isinstance(content, str) else None
