"""What a folder of sentence-transformers says of its encoder: pooling, dense layers, prompts.

`modules.json` lists the modules that a text goes through, each with a folder of its own. Here a
transformer, a pooling, dense layers and a normalisation are known; whatever else is listed is
refused, since leaving it out would change the encoder in silence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch
from jaxtyping import Float32
from safetensors.torch import load_file
from torch import Tensor

from longtail.models.encoders.tokens import Prefixes
from longtail.models.errors import ConfigError
from longtail.models.files.durable import parse_json
from longtail.models.names import Activation, Pooling

_MODULES_NAME = "modules.json"
_PROMPTS_NAME = "config_sentence_transformers.json"
_PACKAGE = "sentence_transformers."
_ORDER = re.compile(r"Transformer Pooling( Dense)*( Normalize)?")
_POOLINGS: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
    "mean": "mean", "cls": "cls", "lasttoken": "last",
}  # fmt: skip
"""By the name of a switch, and by what newer files say instead of switches."""
_ACTIVATIONS: dict[str, Activation] = {"Identity": "identity", "Tanh": "tanh"}
_LABEL_PROMPTS = ("document", "passage", "corpus")
"""Prompts of searched passages, which labels are; the first existing prompt counts."""


@dataclass(frozen=True, slots=True)
class DenseLayer:
    """A linear map of pooled states, with what its numbers go through.

    Attributes:
        weight: From the last layer's numbers to those of a vector.
        bias: Added to it.
        activation: Activation of the sum.
    """

    weight: Float32[Tensor, "dim hidden_dim"]
    bias: Float32[Tensor, " dim"]
    activation: Activation


@dataclass(frozen=True, slots=True)
class SentenceModules:
    """What an encoder does behind its transformer; the defaults are those of a transformer alone.

    Attributes:
        pooling: What stands for a text; None: nothing says so.
        pools_prefix: Whether the tokens of a prefix count in that.
        dense: What pooled states go through; several dense layers are one, their product.
        is_normalized: Whether all vectors have one length.
        prefixes: Put before texts: of documents the prompt of queries, of labels that of passages.
    """

    pooling: Pooling | None = None
    pools_prefix: bool = True
    dense: DenseLayer | None = None
    is_normalized: bool = False
    prefixes: Prefixes = field(default_factory=Prefixes)


def read_sentence_modules(folder: Path) -> SentenceModules:
    """Return what the files of sentence-transformers in an encoder's folder say; they may lack."""
    prefixes = _prefixes(folder)
    if not (folder / _MODULES_NAME).is_file():
        return SentenceModules(prefixes=prefixes)
    modules = _modules(folder)
    layers = [_dense(folder, path) for kind, path in modules if kind == "Dense"]
    pooling, pools_prefix = _pooling(folder, modules[1][1])
    return SentenceModules(
        pooling=pooling,
        pools_prefix=pools_prefix,
        dense=_product(folder, layers) if layers else None,
        is_normalized=modules[-1][0] == "Normalize",
        prefixes=prefixes,
    )


def _modules(folder: Path) -> list[tuple[str, str]]:
    # Return kind and folder of each module, in the order in which a text goes through them.
    listed: list[dict[str, Any]] = _read_json(folder / _MODULES_NAME)
    kinds = [
        each["type"].rpartition(".")[2] if each["type"].startswith(_PACKAGE) else each["type"]
        for each in listed
    ]
    if _ORDER.fullmatch(" ".join(kinds)) is None:
        _refuse(
            folder, _MODULES_NAME,
            f"the modules {', '.join(kinds)}, expected a Transformer, a Pooling, any Dense layers "
            "and at most one Normalize, in this order",
        )  # fmt: skip
    return [(kind, each["path"]) for kind, each in zip(kinds, listed, strict=True)]


def _pooling(folder: Path, path: str) -> tuple[Pooling, bool]:
    # Return what stands for a text, and whether a prefix counts in that.
    name = f"{path}/config.json"
    said = _read_json(folder / name)
    modes = [key for key, value in said.items() if key.startswith("pooling_mode_") and value]
    newer = said.get("pooling_mode", [])
    modes += [newer] if isinstance(newer, str) else list(newer)
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        _refuse(
            folder, name,
            f"the poolings {', '.join(modes) or 'none'}, expected one of the mean, the first "
            "token (cls) and the last token",
        )  # fmt: skip
    return _POOLINGS[modes[0]], bool(said.get("include_prompt", True))


def _dense(folder: Path, path: str) -> DenseLayer:
    # Return a dense layer.
    name = f"{path}/config.json"
    said = _read_json(folder / name)
    activation = said.get("activation_function", "Tanh").rpartition(".")[2]
    if activation not in _ACTIVATIONS:
        expected = " or ".join(_ACTIVATIONS)
        _refuse(folder, name, f"the activation {activation!r}, expected {expected}")
    reads = said.get("module_input_name", "sentence_embedding")
    if reads != "sentence_embedding":
        _refuse(folder, name, f"a layer over {reads!r}, expected over 'sentence_embedding'")
    weights = folder / path / "model.safetensors"
    if not weights.is_file():
        _refuse(folder, name, "a layer without model.safetensors; pickled weights are not loaded")
    arrays = {name: each.float() for name, each in load_file(weights).items()}
    weight = arrays["linear.weight"]
    bias = arrays.get("linear.bias", torch.zeros(len(weight)))
    return DenseLayer(weight, bias, _ACTIVATIONS[activation])


def _product(folder: Path, layers: Sequence[DenseLayer]) -> DenseLayer:
    # Return one layer that does what several do, one after the other.
    if any(layer.activation != "identity" for layer in layers[:-1]):
        _refuse(
            folder, _MODULES_NAME, "a Dense layer with an activation before another Dense layer"
        )
    weight, bias = layers[0].weight.double(), layers[0].bias.double()
    for layer in layers[1:]:
        weight = layer.weight.double() @ weight  # (dim, hidden_dim)
        bias = layer.weight.double() @ bias + layer.bias.double()
    return DenseLayer(weight.float(), bias.float(), layers[-1].activation)


def _prefixes(folder: Path) -> Prefixes:
    """Return the prompts of queries and of passages; else the default one for both."""
    if not (folder / _PROMPTS_NAME).is_file():
        return Prefixes()
    said = _read_json(folder / _PROMPTS_NAME)
    prompts: dict[str, str] = {name: text or "" for name, text in said.get("prompts", {}).items()}
    default = prompts.get(said.get("default_prompt_name") or "", "")
    of_labels = [prompts[name] for name in _LABEL_PROMPTS if name in prompts]
    return Prefixes(prompts.get("query", default), [*of_labels, default][0])


def _read_json(path: Path) -> Any:
    return parse_json(path.read_text(encoding="utf-8"))


def _refuse(folder: Path, name: str, what: str) -> NoReturn:
    raise ConfigError(
        f"encoder in {str(folder)!r}: {name} tells of {what}; use another encoder, or a copy of "
        f"the folder without {_MODULES_NAME}, whose transformer is then used alone"
    )
