"""What training starts from: pooling, dense layers, normalisation and prefixes of an encoder."""

import json
import math
import shutil
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy.sparse import csr_array
from torch.nn.functional import linear, normalize
from transformers import BertConfig, BertModel

from longtail.models.edit.add_labels import add_labels
from longtail.models.encoders.dual_encoder import encode_all
from longtail.models.encoders.pretrained import (
    load_tokenizer,
    load_transformer,
)
from longtail.models.encoders.tokens import Prefixes, tokenize_texts
from longtail.models.errors import ConfigError
from longtail.models.kinds.storage import read_parts
from longtail.models.labels.catalogue import Label
from longtail.models.labels.text import pseudo_description
from longtail.models.predict.predictor import Predictor
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.languages import function_words
from longtail.training.pipeline.encoder_start import DenseStart, start_dense
from tests.conftest import SPECIAL_TOKENS, tokenizer_of

DIM = 8
DENSE = ["retrieval", "classifier", "hybrid", "linear", "sparse"]
PROMPTS = {"query": "the ", "document": "of "}
TRUTH = csr_array(np.zeros((1, 20), dtype=np.float32))
TEXTS = ["the art of the city", "history", "of music and the people of the world"]


@pytest.fixture
def dense():
    generator = torch.Generator().manual_seed(0)
    shapes = {"linear.weight": (DIM, 16), "linear.bias": (DIM,)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


@pytest.fixture
def sentence_encoder(tiny_encoder, tmp_path, dense):
    """The tiny BERT as sentence-transformers would write it, with every module there is."""
    folder = tmp_path / "sentence-encoder"
    shutil.copytree(tiny_encoder, folder)
    kinds = ("Transformer", "Pooling", "Dense", "Normalize")
    listed = [
        {"path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": PROMPTS}))
    write_pooling(folder)
    (folder / "2_Dense").mkdir()
    said = {"activation_function": "torch.nn.modules.activation.Tanh"}
    (folder / "2_Dense" / "config.json").write_text(json.dumps(said))
    save_file(dense, folder / "2_Dense" / "model.safetensors")
    return folder


def write_pooling(folder: Path, **settings: Any) -> None:
    (folder / "1_Pooling").mkdir(exist_ok=True)
    said = {"pooling_mode_mean_tokens": True, **settings}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(said))


@pytest.fixture
def started(tiny_content):
    def start(folder: Path, **changes: Any) -> DenseStart:
        config = TrainingConfig.model_validate(tiny_content | {"encoder": str(folder)} | changes)
        return start_dense(config, TRUTH)

    return start


def sentence_vector(folder: Path, text: str, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    """The oracle: what sentence-transformers computes of one text, times sqrt(dim)."""
    ids = torch.tensor([load_tokenizer(folder).encode(text)])
    hidden = load_transformer(folder)(input_ids=ids).last_hidden_state[0]
    return math.sqrt(DIM) * normalize(linear(hidden.mean(dim=0), weight, bias).tanh(), dim=0)


def vectors(found: DenseStart, role: Any) -> np.ndarray:
    prefix = getattr(found.prefixes, role)
    tokens = tokenize_texts(found.tokenizer, TEXTS, 24, prefix)
    return encode_all(found.model.encoder, tokens, role, pad_id=0)


@pytest.mark.parametrize(("role", "prefix"), [("document", "the "), ("label", "of ")])
def test_training_starts_from_the_vectors_that_the_encoder_was_trained_for(
    started, sentence_encoder, dense, role, prefix
):
    found = started(sentence_encoder)
    assert found.prefixes == Prefixes("the ", "of ")
    with torch.no_grad():
        expected = [
            sentence_vector(sentence_encoder, prefix + text, *dense.values()).numpy()
            for text in TEXTS
        ]
    assert vectors(found, role) == pytest.approx(np.stack(expected), abs=1e-5)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_bundle_makes_the_vectors_of_its_training(
    sentence_encoder, tiny_content, tiny_corpus, train_in, tmp_path, precision
):
    content = {"encoder": str(sentence_encoder), "precision": precision, "scorers": DENSE}
    config = TrainingConfig.model_validate(tiny_content | content)
    bundle = train_in(tmp_path, config, tiny_corpus).bundle
    said = json.loads((bundle.folder / "manifest.json").read_text())
    assert said["encoder"] == {
        "name": "sentence-encoder", "dim": DIM, "max_tokens": 24,
        "sha256": bundle.manifest.encoder.sha256,
        "document_prefix": "the ", "label_prefix": "of ",
        "document_pooling": "mean", "activation": "tanh", "is_normalized": True,
    }  # fmt: skip
    assert said["training"]["retrieval"]["label_pooling"] == "mean"
    assert "document_prefix" not in said["training"]
    parts = read_parts(bundle)
    texts = [f"of {label.pseudo_description}" for label in bundle.catalogue]
    tokens = tokenize_texts(parts.dense.tokenizer, texts, 12)
    found = encode_all(parts.dense.encoder, tokens, "label", pad_id=0)
    assert found == pytest.approx(parts.dense.label_vectors, abs=1e-4)
    assert np.linalg.norm(found, axis=1) == pytest.approx(math.sqrt(DIM), rel=1e-4)
    documents = tokenize_texts(parts.dense.tokenizer, [f"the {text}" for text in TEXTS], 24)
    expected = encode_all(parts.dense.encoder, documents, "document", pad_id=0)
    predictor = Predictor.of_bundle(bundle, precision=precision, device="cpu")
    tolerance = 1e-4 if precision == "float32" else 0.05
    assert predictor.read(TEXTS).vectors == pytest.approx(expected, abs=tolerance * math.sqrt(DIM))


def test_an_encoder_without_epochs_serves_as_it_is(
    sentence_encoder, tiny_content, tiny_corpus, train_in, tmp_path
):
    content = {"encoder": str(sentence_encoder), "scorers": ["retrieval", "sparse"]}
    content |= {stage: {"epochs": 0} for stage in ("classifier", "retrieval")}
    config = TrainingConfig.model_validate(tiny_content | content)
    bundle = train_in(tmp_path, config, tiny_corpus).bundle
    found = start_dense(config, TRUTH)
    texts = [pseudo_description(label) for label in bundle.catalogue]  # without keywords
    tokens = tokenize_texts(found.tokenizer, texts, config.descriptions.max_tokens, "of ")
    expected = encode_all(found.model.encoder, tokens, "label", pad_id=0)
    assert read_parts(bundle).dense.label_vectors == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("pooling", [None, "mean"])
def test_an_encoder_that_was_not_made_for_comparison_is_refused_untrained(tiny_content, pooling):
    retrieval = tiny_content.get("retrieval", {}) | {"epochs": 0}
    content = tiny_content | {"retrieval": retrieval, "document_pooling": pooling}
    config = TrainingConfig.model_validate(content)
    with pytest.raises(ConfigError, match=r"retrieval\.epochs: got 0.*modules\.json"):
        start_dense(config, TRUTH)


@pytest.mark.slow
def test_a_label_that_is_added_is_read_with_the_prefix_of_training(
    sentence_encoder, tiny_content, tiny_corpus, train_in, tmp_path
):
    content = {"encoder": str(sentence_encoder), "scorers": ["retrieval", "sparse"]}
    config = TrainingConfig.model_validate(tiny_content | content)
    trained = train_in(tmp_path, config, tiny_corpus)
    label = Label("new", "music of the world")
    version = trained.registry.publish(add_labels(trained.bundle, [label]))
    changed = read_parts(trained.registry.open(version))
    tokens = tokenize_texts(changed.dense.tokenizer, ["of music of the world"], 12)
    expected = encode_all(changed.dense.encoder, tokens, "label", pad_id=0)
    assert changed.dense.label_vectors[-1] == pytest.approx(expected[0], abs=1e-5)


def test_known_tokens_are_those_of_the_text_and_not_of_its_prefix(tiny_encoder):
    tokenizer = load_tokenizer(tiny_encoder)
    plain = tokenize_texts(tokenizer, ["the art", "xyzzyx"], 24)
    found = tokenize_texts(tokenizer, ["the art", "xyzzyx"], 24, "of the ")
    assert found.num_known.tolist() == plain.num_known.tolist()
    assert found.lengths.tolist() == (plain.lengths + 2).tolist()


@pytest.mark.parametrize("name", ["multilingual", "intfloat/multilingual-e5-small", "a clone"])
def test_the_multilingual_encoder_of_the_hub_has_its_prefixes_under_all_of_its_names(
    name, tiny_encoder, tiny_content, tmp_path, monkeypatch
):
    asked = []

    def fetch(name: str, allow_patterns: list[str]) -> str:
        asked.append(name)
        return str(tiny_encoder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    if name == "a clone":
        name = str(shutil.copytree(tiny_encoder, tmp_path / "multilingual-e5-small"))
    for given, right in ({}, "query: "), ({"document_prefix": ""}, ""):
        content = tiny_content | {"encoder": name} | given
        found = start_dense(TrainingConfig.model_validate(content), TRUTH)
        assert found.prefixes == Prefixes(right, "passage: ")
    assert asked == ["intfloat/multilingual-e5-small"] * 2 * (not Path(name).is_dir())


@pytest.fixture
def check_english(tiny_content, tmp_path):
    """Checks texts for an encoder with a tokenizer that has the words of English."""
    vocabulary = [*SPECIAL_TOKENS, *string.ascii_lowercase, *(f"##{x}" for x in "abcdefghijklmn")]
    vocabulary += [*function_words("en"), *(f"word{number}" for number in range(5000))]
    tokenizer_of(vocabulary).save_pretrained(tmp_path)
    sizes = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = BertConfig(vocab_size=len(vocabulary), intermediate_size=4, **sizes)
    BertModel(config).save_pretrained(tmp_path)

    def check(sample: list[str], **changes: Any) -> None:
        content = tiny_content | {"encoder": str(tmp_path)} | changes
        config = TrainingConfig.model_validate(content)
        start_dense(config, TRUTH, sample=sample)

    return check


ENGLISH = "This is the law of the sea, and the trade of each river is for all"
GERMAN = "Das ist ein Gesetz, und der Handel auf dem Fluss ist nicht der von einem Meer"


def test_an_encoder_that_does_not_know_the_language_is_refused_and_a_better_one_named(
    check_english, caplog
):
    check_english([ENGLISH] * 9)
    assert not caplog.records
    check_english([ENGLISH] * 6 + [GERMAN] * 3)
    assert "33% of the training texts are in German" in caplog.text
    with pytest.raises(
        ConfigError, match=r"67% of the training texts are in German.* multilingual"
    ):
        check_english([ENGLISH] * 3 + [GERMAN] * 6)
    check_english([GERMAN] * 9, languages=[])
