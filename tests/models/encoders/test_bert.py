"""BERT and its tokenizer read without Transformers, which are compared with those it reads."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel

from longtail.models.encoders import pretrained
from longtail.models.encoders.bert import (
    Bert,
    load_encoder,
    load_tokenizer,
    read_bert,
    read_tokenizer,
)
from longtail.models.encoders.tokens import tokenize_texts
from longtail.models.errors import ConfigError
from longtail.models.predict.loading import take_fastest_backend
from longtail.models.predict.predictor import Predictor
from tests.contracts.test_imports import loaded_by, packages

SIZES = {
    "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40,
    "vocab_size": 70, "max_position_embeddings": 300,
}  # fmt: skip
TEXTS = (
    "", " ", "Olive oil and the harvests!", "ÉTÉ été e\u0301te\u0301", "漢字kanji", "x" * 300,
    "[PAD] [CLS] [UNK] [MASK]", "a\x00b\u200bc\r\n\td", "über-straße ﬁ 😀", "the " * 40,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path, tiny_encoder):
    """A folder of a random BERT whose biases and norms are random, too, and of a tokenizer."""
    shutil.copytree(tiny_encoder, tmp_path / "encoder")
    with torch.random.fork_rng():
        torch.manual_seed(4)
        bert = BertModel(BertConfig(**SIZES))
        with torch.no_grad():
            for parameter in bert.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
    bert.save_pretrained(tmp_path / "encoder")
    return tmp_path / "encoder"


@pytest.mark.parametrize("lengths", [(1,), (4, 9, 1), (7, 7), (280, 30)])
def test_the_last_layer_is_that_of_transformers(folder, lengths):
    own, theirs = read_bert(folder), pretrained.load_transformer(folder)
    assert isinstance(own, Bert) and not own.training
    assert (own.dtype, own.device) == (theirs.dtype, theirs.device)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 70, mask.shape, generator=generator)
    with torch.no_grad():
        found, expected = (
            each(input_ids=ids, attention_mask=mask).last_hidden_state[mask > 0]
            for each in (own, theirs)
        )
    assert torch.allclose(found, expected, rtol=1e-5, atol=2e-6)
    assert not torch.allclose(found, expected + 1e-4, rtol=1e-5, atol=2e-6)


def test_weights_are_copies_in_float32(folder):
    path = folder / "model.safetensors"
    weights = {name: each.to(torch.bfloat16) for name, each in load_file(path).items()}
    save_file(weights, path)
    bert = read_bert(folder)
    assert {each.dtype for each in bert.parameters()} == {torch.float32}
    assert not any(each.requires_grad for each in bert.parameters())
    before = bert.get_input_embeddings().weight.clone()
    path.write_bytes(b"0" * path.stat().st_size)
    assert torch.equal(bert.get_input_embeddings().weight, before)


def change_config(**values):
    def change(folder):
        path = folder / "config.json"
        said = json.loads(path.read_text()) | values
        path.write_text(json.dumps(said))

    return change


def change_weights(action):
    def change(folder):
        path = folder / "model.safetensors"
        weights = load_file(path)
        action(weights)
        save_file(weights, path)

    return change


NAME = "encoder.layer.1.output.dense.bias"
OTHERS = {
    "another family": change_config(model_type="electra"),
    "another activation": change_config(hidden_act="relu"),
    "relative positions": change_config(position_embedding_type="relative_key"),
    "a decoder": change_config(is_decoder=True),
    "sizes that are not those of the weights": change_config(intermediate_size=41),
    "heads that do not divide": change_config(num_attention_heads=5),
    "a size that is a text": change_config(hidden_size="24"),
    "a huge size": change_config(vocab_size=2**60),
    "a missing weight": change_weights(lambda weights: weights.pop(NAME)),
    "one weight more": change_weights(lambda x: x.update({f"{NAME}es": x[NAME].clone()})),
    "whole numbers": change_weights(lambda x: x.update({NAME: x[NAME].int()})),
    "weights in parts": lambda x: shutil.copy(x / "model.safetensors", x / "other.safetensors"),
    "no JSON": lambda x: (x / "config.json").write_text("{"),
    "no configuration": lambda x: (x / "config.json").unlink(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_plain_bert_is_left_to_transformers(folder, name):
    OTHERS[name](folder)
    assert read_bert(folder) is None


def test_an_encoder_of_numbers_that_are_not_finite_is_refused(folder):
    change_weights(lambda x: x.update({NAME: torch.full_like(x[NAME], torch.nan)}))(folder)
    with pytest.raises(ConfigError, match="not finite"):
        load_encoder(folder)


def test_where_there_is_a_gpu_transformers_read_it(folder, monkeypatch):
    monkeypatch.setattr("longtail.models.encoders.bert.sees_gpu", lambda: True)
    assert isinstance(load_encoder(folder), BertModel)


@pytest.mark.parametrize("which", ["tiny", "packaged"])
def test_token_ids_are_those_of_transformers(tiny_encoder, which):
    where = tiny_encoder if which == "tiny" else pretrained.find_encoder("packaged").folder
    own, theirs = read_tokenizer(where), pretrained.load_tokenizer(where)
    assert len(own) == len(theirs)
    assert own.pad_token_id == theirs.pad_token_id
    assert own.all_special_ids == sorted(theirs.all_special_ids)
    assert own.num_special_tokens_to_add() == theirs.num_special_tokens_to_add()
    for prefix in ("", "query: "):
        found, expected = (tokenize_texts(each, TEXTS, 30, prefix) for each in (own, theirs))
        for name in ("ids", "offsets", "num_tokens", "num_known"):
            assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name


@pytest.mark.parametrize(
    "change",
    [
        {"tokenizer_class": "XLMRobertaTokenizer"}, {"add_bos_token": True},
        {"extra_special_tokens": ["the"]}, {"pad_token": "no such token"}, {"pad_token": 3},
    ],
)  # fmt: skip
def test_tokenizers_that_do_more_than_their_file_says_are_left_to_transformers(folder, change):
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert read_tokenizer(folder) is None


def test_a_folder_without_a_tokenizer_is_refused(folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match="no tokenizer"):
        load_tokenizer(folder)


def test_the_fastest_backend_takes_its_weights(bundle):
    predictor = Predictor.of_bundle(bundle, device="cpu")
    dense = predictor.parts.dense  # what answers
    assert not isinstance(dense.encoder.transformer, BertModel)
    take_fastest_backend(dense.encoder)  # again: nothing to replace
    assert predictor.predict(["and the"], k=2)[0].labels


def test_a_bundle_is_loaded_without_transformers(written_bundle):
    load = f"import longtail\nlongtail.load({str(written_bundle)!r}, device='cpu').predict('and')"
    found = packages(loaded_by(load))
    assert "torch" in found and "transformers" not in found
