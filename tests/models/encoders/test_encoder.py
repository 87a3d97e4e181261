"""Encoders are found or refused without a network; tokens are cut as Hugging Face cuts them."""

import hashlib
import json
import shutil
import socket
from pathlib import Path

import huggingface_hub.constants
import numpy as np
import pytest
import torch
from huggingface_hub.utils import filter_repo_objects
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from longtail.models.encoders.pretrained import find_encoder, load_tokenizer, load_transformer
from longtail.models.encoders.tokens import TokenizedTexts, tokenize_texts
from longtail.models.errors import ConfigError

TEXTS = ["river fish law", "", "rivers and the court", "trade " * 30, "nothing known", "tax"]


@pytest.fixture
def offline(monkeypatch):
    """No hub: as with HF_HUB_OFFLINE=1, and every attempt fails."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a test must not use the network")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


def encoder_folder(folder: Path, *weights: str) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for name in weights:
        (folder / name).write_bytes(name.encode())
    return folder


def test_a_folder_is_an_encoder_by_its_name_and_the_sha256_of_its_weights(tmp_path):
    folder = encoder_folder(tmp_path / "mine", "model.safetensors")
    found = find_encoder(f"{folder}/")
    assert (found.name, found.folder) == ("mine", folder)
    assert found.sha256 == hashlib.sha256(b"model.safetensors").hexdigest()


@pytest.mark.parametrize("weights", [[], ["pytorch_model.bin"]])
def test_a_folder_without_safetensors_is_refused(tmp_path, weights):
    folder = encoder_folder(tmp_path / "mine", *weights)
    with pytest.raises(
        ConfigError, match=r"expected config\.json and \*\.safetensors in .*convert"
    ):
        find_encoder(str(folder))


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", ["nobody/no-such-encoder", "no/such/folder", "../bad id?"])
def test_an_encoder_that_cannot_be_fetched_is_refused(name):
    with pytest.raises(ConfigError, match=r"not a folder, and the model hub gave .*use 'packaged'"):
        find_encoder(name)


HUB_FILES = {
    "what is needed": ["config.json", "model.safetensors", "model-00001-of-00002.safetensors",
                       "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json",
                       "special_tokens_map.json", "added_tokens.json", "vocab.txt", "vocab.json",
                       "merges.txt", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model"],
    "what is not": ["pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "weights.pkl",
                    "modeling_mine.py", "configuration_mine.py", "tf_model.h5", "README.md",
                    "training_args.bin", "flax_model.msgpack"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vocab_size", 2 * 10**9),
        ("intermediate_size", 10**8),
        ("num_hidden_layers", 10**6),
        ("max_position_embeddings", 10**9),
    ],
)
def test_a_configuration_far_larger_than_its_weights_is_refused(bundle_folder, name, value):
    path = bundle_folder / "encoder" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    with pytest.raises(ConfigError, match=r"describes a model of .* expected those of one model"):
        load_transformer(path.parent)


@pytest.mark.parametrize("kind", HUB_FILES)
def test_of_a_hub_encoder_all_that_is_needed_is_fetched_and_nothing_that_can_run_code(
    tmp_path, monkeypatch, kind
):
    asked: dict[str, list[str]] = {}

    def fetch(name: str, allow_patterns: list[str]) -> str:
        asked[name] = allow_patterns
        return str(encoder_folder(tmp_path / "fetched", "model.safetensors"))

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    find_encoder("nobody/mine")
    files = HUB_FILES[kind]
    found = list(filter_repo_objects(files, allow_patterns=asked["nobody/mine"]))
    assert found == (files if kind == "what is needed" else [])


def test_weights_of_another_model_than_the_configuration_describes_are_refused(
    written_bundle, tmp_path
):
    folder = shutil.copytree(written_bundle / "encoder", tmp_path / "mixed")
    save_file({"other.weight": torch.ones(2)}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        ConfigError,
        match=r"\*\.safetensors lack \d+ of the \d+ weights of BertModel, 'embeddings\.",
    ):
        load_transformer(folder)


@pytest.mark.usefixtures("offline")
def test_a_saved_encoder_loads_in_evaluation_mode_and_float32(written_bundle):
    transformer = load_transformer(written_bundle / "encoder")
    assert not transformer.training
    assert {parameter.dtype for parameter in transformer.parameters()} == {torch.float32}


@pytest.mark.usefixtures("offline")
def test_a_saved_tokenizer_gives_the_same_tokens(written_bundle, tokenizer):
    found = tokenize_texts(load_tokenizer(written_bundle / "encoder"), TEXTS, 8)
    np.testing.assert_array_equal(found.ids, tokenize_texts(tokenizer, TEXTS, 8).ids)


def text_ids(tokens: TokenizedTexts, row: int) -> list[int]:
    ids: list[int] = tokens.ids[tokens.offsets[row] : tokens.offsets[row + 1]].tolist()
    return ids


@given(st.lists(st.text("rivefsh ,.", max_size=60), max_size=5), st.integers(2, 40))
def test_texts_are_cut_as_hugging_face_cuts_them(tokenizer, texts, max_tokens):
    found = tokenize_texts(tokenizer, texts, max_tokens)
    whole = [tokenizer(text)["input_ids"] for text in texts]
    cut = [tokenizer(text, truncation=True, max_length=max_tokens)["input_ids"] for text in texts]
    tokenizer.backend_tokenizer.no_truncation()
    assert [text_ids(found, row) for row in range(len(texts))] == cut
    assert found.num_tokens.tolist() == [len(ids) for ids in whole]
    assert found.lengths.tolist() == [len(ids) for ids in cut]
    special = set(tokenizer.all_special_ids)
    assert found.num_known.tolist() == [sum(x not in special for x in ids) for ids in cut]


def test_a_part_of_a_batch_has_its_rows_and_no_padding_that_none_of_them_needs(tokenizer):
    batch = tokenize_texts(tokenizer, TEXTS, 8).batch(np.arange(len(TEXTS)), 0, "cpu")
    part = batch.part(1, 3)
    width = int(batch.mask[1:3].sum(dim=1).max())
    assert len(part) == 2 and part.ids.shape[1] == width
    assert part.ids.tolist() == batch.ids[1:3, :width].tolist()
    assert part.mask.tolist() == batch.mask[1:3, :width].tolist()
