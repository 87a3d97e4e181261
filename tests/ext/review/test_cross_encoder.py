"""A cross-encoder of our own: what it learns, what is written, and what is refused."""

import asyncio
import json
import shutil
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
from typer.testing import CliRunner

import longtail
from longtail.ext.review import cross_encoder_training as training
from longtail.ext.review.reviewer import open_reviewer
from longtail.models.bundle.bundle import Bundle
from longtail.models.encoders.pretrained import EncoderSource
from longtail.models.errors import ConfigError
from longtail.models.labels.catalogue import Label
from longtail.training.data.dataset import Dataset
from tests.conftest import SPECIAL_TOKENS, tokenizer_of

WORDS = [f"word{i}" for i in range(6)]


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A random BERT that knows six words is the packaged encoder."""
    vocabulary = [*SPECIAL_TOKENS, *WORDS]
    tokenizer_of(vocabulary).save_pretrained(tmp_path / "encoder")
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=32,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = BertModel(config)
        torch.nn.init.normal_(encoder.embeddings.word_embeddings.weight)
    encoder.save_pretrained(tmp_path / "encoder")
    source = EncoderSource("small", tmp_path / "encoder", "0" * 64)
    monkeypatch.setattr(training, "find_encoder", lambda _: source)
    monkeypatch.setattr(training, "_MAX_TOKENS", 16)


@pytest.fixture
def task(monkeypatch):
    """Documents that are the name of their right label; the others are wrong."""
    names = np.arange(len(WORDS))
    examples = [(word, names[names == i], names[names != i]) for i, word in enumerate(WORDS)] * 20
    monkeypatch.setattr(training, "_examples", lambda *_: examples)
    bundle = Mock(spec=Bundle, catalogue=[Label(word, word) for word in WORDS])
    return bundle, Mock(spec=Dataset)


def share_right(folder):
    """Return the share of texts whose right label has the highest score."""

    async def work():
        reviewer = open_reviewer("cross-encoder", str(folder))
        scores = [await reviewer.scores(word, WORDS) for word in WORDS]
        await reviewer.close()
        return float(np.mean(np.argmax(scores, axis=1) == np.arange(len(WORDS))))

    return asyncio.run(work())


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "new" / "reviewer"


def test_it_learns_which_names_are_in_a_text(small, task, folder, monkeypatch):
    monkeypatch.setattr(training, "_RATE", 0.0)
    monkeypatch.setattr(training, "_HEAD_RATE", 0.0)
    training.train_cross_encoder(*task, folder.with_name("untrained"), 120)
    assert share_right(folder.with_name("untrained")) < 0.5
    for name, value in {"_RATE": 3e-3, "_HEAD_RATE": 3e-3, "_EPOCHS": 20}.items():
        monkeypatch.setattr(training, name, value)
    training.train_cross_encoder(*task, folder, 120)
    assert share_right(folder) > 0.8  # by chance 1 / 6
    assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == 16
    assert {each.name for each in folder.parent.iterdir()} == {"untrained", "reviewer"}


def test_a_failure_leaves_no_folder(small, task, folder, monkeypatch):
    def fails(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(PreTrainedTokenizerFast, "save_pretrained", fails)
    with pytest.raises(KeyboardInterrupt):
        training.train_cross_encoder(*task, folder, 120)
    assert not [*folder.parent.iterdir()]


@pytest.fixture
def call(trained, tiny_corpus, tiny_encoder, tmp_path, monkeypatch):
    registry = shutil.copytree(trained.registry.folder, tmp_path / "registry")
    source = EncoderSource("tiny", tiny_encoder, "0" * 64)
    monkeypatch.setattr(training, "find_encoder", lambda _: source)
    monkeypatch.setattr(training, "_MAX_TOKENS", 48)
    monkeypatch.setattr("longtail.ext.review.reviewed.LEAST_DOCUMENTS", 10)

    def run(folder, *options, reviewer="cross-encoder"):
        given = ["review", tiny_corpus, "--registry", registry, "--reviewer", reviewer]
        given += ["--address", folder, *options]
        return CliRunner().invoke(longtail.app, [*map(str, given)], catch_exceptions=False)

    return run


@pytest.mark.parametrize("num_documents", [30, 10_000])
def test_a_command_trains_and_fits_a_cross_encoder(call, folder, monkeypatch, num_documents):
    monkeypatch.setattr("longtail.ext.review.reviewed.Reviewed.check_gain", lambda _: None)
    result = call(folder, "--train-documents", num_documents, "--candidates", 10)
    assert "counts this reviewer's scores" in result.stdout
    again = call(folder, "--candidates", 10)  # the same one, which is not trained again
    assert again.stdout.replace("Version 3", "Version 2") == result.stdout


@pytest.mark.parametrize(
    ("options", "reviewer", "words"),
    [
        (["--train-documents", 10], "rerank", "expected 'cross-encoder'"),
        (["--train-documents", 10], "cross-encoder", r"of 10 documents \d+ have a right label"),
        (["--train-documents", 30, "--scorer", "magic"], "cross-encoder", "magic"),
    ],
)
def test_what_can_not_be_trained_is_refused(call, folder, options, reviewer, words):
    with pytest.raises(ConfigError, match=words):
        call(folder, *options, reviewer=reviewer)
    assert not folder.exists()


def test_documents_without_wrong_labels_near_the_top_are_left_out(call, folder, monkeypatch):
    monkeypatch.setattr(training, "_RANKED", 2)
    with pytest.raises(ConfigError, match="of 60 documents 0 have a right label and 3 wrong"):
        call(folder, "--train-documents", 60)


def test_a_folder_that_exists_is_not_trained_over(call, folder):
    folder.mkdir(parents=True)
    with pytest.raises(ConfigError, match="already exists; leave --train-documents out"):
        call(folder, "--train-documents", 30)
    assert not [*folder.iterdir()]
