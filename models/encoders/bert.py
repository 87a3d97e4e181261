"""BERT's encoder and tokenizer as a bundle has them, without Transformers, whose import takes 3 s.

They are for inference on CPUs. Where an encoder is of another architecture or its files hold other
weights, Transformers reads it (`longtail.models.encoders.pretrained`).

`last_layer` has gradients and no padding: the tokens of a batch stand one after the other, and only
attention sees them text by text. For a document's vector, which is made of its first token ([CLS],
DEPL Eq. 1), all that follows attention in the last layer is computed for first tokens alone: a
seventh of all products with six layers. It has the transformer's own weights, dropout and
gradients; only the draws of dropout and the last bits differ. Services compute by
`longtail.models.encoders.cpu.unpadded`, which is faster and has no gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import torch
from jaxtyping import Float, Int
from pydantic import BaseModel, Field
from safetensors import safe_open
from tokenizers import Tokenizer as Backend
from torch import Tensor, nn
from torch.nn.functional import dropout, linear, scaled_dot_product_attention

from longtail.models.encoders.check import check_finite
from longtail.models.encoders.families import (
    BERT_LIKE,
    LastLayer,
    Tokenizer,
    Transformer,
    is_transformer,
)
from longtail.models.encoders.tokens import TokenBatch
from longtail.models.files.durable import parse_json
from longtail.models.processor import sees_gpu

_MAX_TOKENS = 256
"""Longest text whose attention is computed by matrix products, whose gradients are faster; for
longer ones they take more memory than they are worth."""
_SHAPES_A_DOUBLING = 16
"""Numbers of tokens that are computed with, between one and twice as many: oneDNN compiles its
kernels for each, and remembers them with their memory."""


def can_pack(transformer: nn.Module, batch: TokenBatch) -> bool:
    """Whether a batch can be computed here: BERT's architecture, on a processor.

    Not where layers are computed twice to save memory, which the transformer does by itself.
    """
    if not is_transformer(transformer) or batch.ids.device.type != "cpu":
        return False
    names = ("is_activation_checkpointing", "is_gradient_checkpointing")  # new, old name
    name = next((each for each in names if hasattr(transformer, each)), "")
    return transformer.config.model_type in BERT_LIKE and not getattr(transformer, name, False)


def last_layer(transformer: Any, batch: TokenBatch) -> Float[Tensor, "batch token dim"]:
    """Return the last layer, as the transformer itself does; zeros in place of padding."""
    places = _Places.of(batch)
    hidden = _embedded(transformer.embeddings, batch, places)
    for layer in transformer.encoder.layer:
        hidden = _packed_layer(layer, hidden, places)
    return places.padded(hidden)


def first_states(transformer: Any, batch: TokenBatch) -> Float[Tensor, "batch dim"]:
    """Return the last layer of the first token of each text."""
    places = _Places.of(batch)
    hidden = _embedded(transformer.embeddings, batch, places)
    *below, last = transformer.encoder.layer
    for layer in below:
        hidden = _packed_layer(layer, hidden, places)
    return _packed_layer(last, hidden, places, of_first=True)


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the tokens of a batch are.

    Attributes:
        num_texts: In the batch.
        width: Tokens of the longest.
        sources: The places of tokens among all of the batch, text by text, and again that of the
            first up to a number that others have too; None: all are tokens.
        targets: The same, where the repeated ones are behind all of the batch.
        first: Position of each text's first token, among the tokens.
        mask: (text, 1, 1, token): where there is one; None: everywhere.
    """

    num_texts: int
    width: int
    sources: Int[Tensor, "token"] | None
    targets: Int[Tensor, "token"] | None
    first: Int[Tensor, "text"]
    mask: Tensor | None

    @classmethod
    def of(cls, batch: TokenBatch) -> _Places:
        num_texts, width = batch.mask.shape
        is_token = batch.mask > 0
        if bool(is_token.all()):
            return cls(num_texts, width, None, None, torch.arange(num_texts) * width, None)
        ends = is_token.sum(dim=1).cumsum(dim=0)
        first = torch.cat([ends.new_zeros(1), ends[:-1]])
        tokens = is_token.flatten().nonzero()[:, 0]
        repeated = tokens.new_zeros(rounded_up(len(tokens)) - len(tokens))
        sources = torch.cat([tokens, repeated])
        targets = torch.cat([tokens, repeated + num_texts * width])
        return cls(num_texts, width, sources, targets, first, is_token[:, None, None, :])

    def packed(self, padded: Tensor) -> Tensor:
        """Return the rows of tokens: (text, token, ...) becomes (token, ...)."""
        rows = padded.flatten(0, 1)
        return rows if self.sources is None else rows.index_select(0, self.sources)

    def padded(self, packed: Tensor) -> Tensor:
        """Return rows of tokens text by text, with zeros in place of padding."""
        if self.targets is not None:
            size = self.num_texts * self.width
            rows = packed.new_zeros(size + 1, packed.shape[1])  # the last takes what is repeated
            packed = rows.index_copy(0, self.targets, packed)[:size]
        return packed.view(self.num_texts, self.width, -1)


def rounded_up(num_tokens: int) -> int:
    """Return the next larger number of tokens that is computed with."""
    unit = max(1, (1 << (num_tokens - 1).bit_length()) // (2 * _SHAPES_A_DOUBLING))
    return -(-num_tokens // unit) * unit


def _embedded(embeddings: Any, batch: TokenBatch, places: _Places) -> Float[Tensor, "token dim"]:
    positions = embeddings.position_embeddings
    # RoBERTa and its kin count positions from the padding id + 1.
    start = 0 if positions.padding_idx is None else positions.padding_idx + 1
    numbers = torch.arange(start, start + places.width).expand(places.num_texts, -1)
    words = embeddings.word_embeddings(places.packed(batch.ids))
    kind = embeddings.token_type_embeddings.weight[0]  # all tokens are of the first
    summed = words + kind + positions(places.packed(numbers))
    embedded: Tensor = embeddings.dropout(embeddings.LayerNorm(summed))
    return embedded


def _packed_layer(
    layer: Any, hidden: Float[Tensor, "token dim"], places: _Places, *, of_first: bool = False
) -> Tensor:
    """Return the output of a layer: of all tokens, or of the first of each text."""
    heads, after = layer.attention.self, layer.attention.output
    rows = hidden.index_select(0, places.first) if of_first else hidden
    mixed = _attention(heads, hidden, rows, places, of_first=of_first)
    mixed = after.LayerNorm(after.dropout(after.dense(mixed)) + rows)
    inner = layer.intermediate.intermediate_act_fn(layer.intermediate.dense(mixed))
    output = layer.output
    normed: Tensor = output.LayerNorm(output.dropout(output.dense(inner)) + mixed)
    return normed


def _attention(
    heads: Any, hidden: Tensor, rows: Tensor, places: _Places, *, of_first: bool
) -> Float[Tensor, "row dim"]:
    """Return what rows take from all tokens of their texts, by all heads."""
    layers = [heads.key, heads.value] if of_first else [heads.key, heads.value, heads.query]
    weight = torch.cat([projection.weight for projection in layers])
    bias = torch.cat([projection.bias for projection in layers])
    parts = list(places.padded(linear(hidden, weight, bias)).chunk(len(layers), dim=-1))
    if of_first:
        parts.append(heads.query(rows).unsqueeze(1))  # (text, 1, dim)
    keys, values, queries = (
        part.view(*part.shape[:2], heads.num_attention_heads, -1).transpose(1, 2) for part in parts
    )  # each (text, head, token, dim of a head)
    share = heads.dropout.p if heads.training else 0.0
    if places.width > _MAX_TOKENS:
        mixed = scaled_dot_product_attention(
            queries, keys, values, attn_mask=places.mask, dropout_p=share
        )
    else:
        scores = queries * keys.shape[-1] ** -0.5 @ keys.transpose(-1, -2)
        if places.mask is not None:
            scores = scores.masked_fill(~places.mask, float("-inf"))
        mixed = dropout(scores.softmax(dim=-1), share, training=True) @ values
    mixed = mixed.transpose(1, 2).flatten(-2)  # (text, token, dim)
    return mixed[:, 0] if of_first else places.packed(mixed)


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
    """Return the encoder of a bundle in float32, in evaluation mode; nothing of it can run code."""
    bert = None if sees_gpu() else read_bert(folder)
    if bert is None:
        from longtail.models.encoders.pretrained import load_transformer

        return load_transformer(folder)
    found = cast("Transformer", bert)
    check_finite(found, folder)
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
        return self.backend_tokenizer.get_vocab_size()

    def num_special_tokens_to_add(self) -> int:
        """Return the number of special tokens around one text."""
        return self.backend_tokenizer.num_special_tokens_to_add(is_pair=False)


def load_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer of a bundle's encoder; it can run no code."""
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
