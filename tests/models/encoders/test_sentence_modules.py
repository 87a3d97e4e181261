"""What the files of sentence-transformers say of an encoder, against a plain forward pass."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from longtail.models.encoders.sentence_modules import read_sentence_modules
from longtail.models.encoders.tokens import Prefixes
from longtail.models.errors import ConfigError

PLACE = "sentence_transformers.models."
MEAN = {"pooling_mode_mean_tokens": True}
IDENTITY = "torch.nn.modules.linear.Identity"
TANH = "torch.nn.modules.activation.Tanh"


@pytest.fixture
def folder_with(tmp_path):
    """Writes modules.json and a folder for each module, with its settings and weights."""

    def write(*modules: tuple[str, dict[str, Any], dict[str, torch.Tensor]]) -> Path:
        listed = [{"idx": 0, "name": "0", "path": "", "type": f"{PLACE}Transformer"}]
        for i, (kind, settings, weights) in enumerate(modules, start=1):
            path = f"{i}_{kind}"
            name = kind if "." in kind else f"{PLACE}{kind}"
            listed.append({"idx": i, "name": str(i), "path": path, "type": name})
            (tmp_path / path).mkdir()
            (tmp_path / path / "config.json").write_text(json.dumps(settings))
            if weights:
                save_file(weights, tmp_path / path / "model.safetensors")
        (tmp_path / "modules.json").write_text(json.dumps(listed))
        return tmp_path

    return write


def pooling(**settings: Any) -> tuple[str, dict[str, Any], dict[str, torch.Tensor]]:
    return ("Pooling", {"word_embedding_dimension": 6, **settings}, {})


def dense(
    size: int, dim: int, activation: str, *, bias: bool = True, **settings: Any
) -> tuple[str, dict[str, Any], dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(size * 100 + dim)
    weights = {"linear.weight": torch.randn(dim, size, generator=generator)}
    if bias:
        weights["linear.bias"] = torch.randn(dim, generator=generator)
    said = {"in_features": size, "out_features": dim, "bias": bias}
    return ("Dense", said | {"activation_function": activation} | settings, weights)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (MEAN, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "lasttoken"}, "last"),
        ({"pooling_mode": ["mean"]}, "mean"),
    ],
)
def test_the_pooling_is_read(folder_with, settings, expected):
    found = read_sentence_modules(folder_with(pooling(**settings)))
    assert (found.pooling, found.pools_prefix, found.is_normalized) == (expected, True, False)
    assert found.dense is None


def test_several_dense_layers_are_their_product(folder_with):
    layers = [dense(6, 9, IDENTITY), dense(9, 4, TANH, bias=False)]
    found = read_sentence_modules(folder_with(pooling(**MEAN), *layers, ("Normalize", {}, {})))
    state = torch.randn(3, 6, generator=torch.Generator().manual_seed(7))
    expected = state
    for _, _, weights in layers:
        bias = weights.get("linear.bias")
        expected = torch.nn.functional.linear(expected, weights["linear.weight"], bias)
    assert found.dense is not None
    both = torch.nn.functional.linear(state, found.dense.weight, found.dense.bias)
    assert torch.allclose(both, expected, atol=1e-5)
    assert (found.dense.activation, found.is_normalized) == ("tanh", True)


@pytest.mark.parametrize(
    "modules",
    [
        [],
        [("LSTM", {}, {}), pooling(**MEAN)],
        [pooling(**MEAN), ("Normalize", {}, {}), dense(6, 6, IDENTITY)],
        [pooling(**MEAN), ("custom_st.Router", {}, {})],
    ],
)
def test_other_modules_are_refused_and_their_code_not_run(folder_with, modules):
    folder = folder_with(*modules)
    (folder / "custom_st.py").write_text("raise SystemExit('the code was run')")
    with pytest.raises(ConfigError, match=r"tells of the modules Transformer.*, expected a Trans"):
        read_sentence_modules(folder)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, Prefixes()),
        ({"prompts": {"query": "q: ", "document": "p: "}}, Prefixes("q: ", "p: ")),
        ({"prompts": {"query": "q: ", "passage": "p: ", "STS": "s: "}}, Prefixes("q: ", "p: ")),
        ({"prompts": {"query": "Query:", "document": ""}}, Prefixes("Query:", "")),
        ({"prompts": {"s": "s: "}, "default_prompt_name": "s"}, Prefixes("s: ", "s: ")),
        ({"prompts": {"sts": "s: "}, "default_prompt_name": None}, Prefixes()),
    ],
)  # fmt: skip
def test_documents_get_the_prompt_of_queries_and_labels_that_of_passages(tmp_path, said, expected):
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(said))
    assert read_sentence_modules(tmp_path).prefixes == expected
