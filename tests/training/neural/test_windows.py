"""Training on documents in windows, and runs with it, mined negatives and a joint loss at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch

from models.encoders.dual_encoder import DualEncoder, encode_all
from models.encoders.pretrained import load_tokenizer, load_transformer
from models.encoders.tokens import tokenize_texts
from models.errors import ConfigError
from models.parts.storage import read_parts
from models.predict.predictor import Predictor
from models.windows import Windows
from training.configuration.run import TrainingConfig, read_config
from training.data.dataset import open_dataset
from training.learning.subset_losses import depl_loss
from training.neural import loop as stages
from training.neural.gradient_cache import encoding_in_parts
from training.neural.label_subsets import LabelSubsets
from training.neural.model import DeplModel, TrainingTexts
from training.neural.steps import retrieval_step
from training.runtime.machine import Machine

CPU = Machine("cpu", is_bfloat16=False)
WINDOWS = Windows(overlap=4, pool="mean", most=3)
ROWS = np.arange(10)


@pytest.fixture(scope="module")
def texts(tiny_corpus, tiny_encoder) -> TrainingTexts:
    dataset = open_dataset(tiny_corpus)
    tokenizer = load_tokenizer(tiny_encoder)
    split = dataset.split("train")
    documents = [text[: 30 + 40 * (i % 5)] for i, text in enumerate(split.texts())]
    return TrainingTexts(
        documents=tokenize_texts(tokenizer, documents, 12, WINDOWS),
        labels=tokenize_texts(tokenizer, [label.name for label in dataset.catalogue], 8),
        truth=split.scan().labels,
        pad_id=0,
    )


@pytest.fixture
def new_model(tiny_encoder, texts) -> Callable[[], DeplModel]:
    priors = np.full(texts.truth.shape[1], 0.05, dtype=np.float32)
    return lambda: DeplModel(DualEncoder(load_transformer(tiny_encoder)), priors).eval()


def step_of(model: DeplModel, texts: TrainingTexts):
    no_hard = np.empty((60, 0), dtype=np.int64)
    subsets = LabelSubsets(texts.truth, no_hard, 80)
    return subsets, retrieval_step(
        model, texts, subsets, CPU, loss=depl_loss, keep_classifier=False
    )


def test_a_step_scores_the_mean_of_the_windows_of_each_document(new_model, texts):
    model = new_model()
    subsets, step = step_of(model, texts)
    found = step(ROWS, np.random.default_rng(3)).item()
    labels = subsets.draw(ROWS, np.random.default_rng(3))
    documents, firsts = [], texts.documents.firsts
    assert firsts is not None
    counts = np.diff(firsts)[ROWS]
    assert set(counts.tolist()) >= {1, 3}
    for row in ROWS:
        offsets = texts.documents.offsets[firsts[row] : firsts[row + 1] + 1]
        windows = [texts.documents.ids[a:b] for a, b in pairwise(offsets)]
        with torch.inference_mode():
            hidden = [
                model.encoder.transformer(input_ids=torch.from_numpy(ids)[None]).last_hidden_state
                for ids in windows
            ]
            vectors = [model.encoder.document_pooler(each[0, 0]) for each in hidden]
        documents.append(torch.stack(vectors).mean(dim=0).numpy())
    vectors = encode_all(model.encoder, texts.labels, "label", pad_id=0)[labels]
    expected = depl_loss(
        torch.from_numpy(np.stack(documents) @ vectors.T),
        torch.from_numpy(texts.truth.toarray()[np.ix_(ROWS, labels)] > 0),
    )
    assert found == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("num_parts", [2, 7])
def test_documents_encoded_in_parts_have_the_loss_and_gradient_of_the_whole(
    new_model, texts, num_parts
):
    found = []
    for parts in (1, num_parts):
        model = new_model()
        with encoding_in_parts(model, CPU, parts, is_compiled=False):
            _, step = step_of(model, texts)
            loss = step(ROWS, np.random.default_rng(3))
            loss.backward()
        found.append((loss.item(), model.encoder.document_pooler.weight.grad))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-5)
    torch.testing.assert_close(found[1][1], found[0][1], rtol=1e-3, atol=1e-5)


# ---- whole runs ----


@pytest.fixture(scope="module")
def everything(tiny_content) -> TrainingConfig:
    """A run with all that is off by default."""
    more = {
        "scorers": ["retrieval", "classifier", "hybrid", "sparse"],
        "document_max_tokens": 12,
        "windows": {"overlap": 4, "most": 3},
        "retrieval": tiny_content["retrieval"]
        | {"joint": "hybrid", "refresh": {"every_steps": 3, "share": 0.5}},
    }
    return TrainingConfig.model_validate(tiny_content | more)


@pytest.fixture(scope="module")
def trained_with_everything(tmp_path_factory, train_in, everything, tiny_corpus):
    return train_in(tmp_path_factory.mktemp("everything"), everything, tiny_corpus)


def test_a_run_keeps_its_windows_in_the_bundle_and_reads_by_them(trained_with_everything):
    bundle = trained_with_everything.bundle
    assert bundle.manifest.format_version == 5
    assert bundle.manifest.training["windows"] == {"overlap": 4, "pool": "mean", "most": 3}
    dense = read_parts(bundle).dense
    assert dense.windows == WINDOWS
    assert dense.most_tokens == 2 + 10 + 2 * 6
    (prediction,) = Predictor.of_bundle(bundle, device="cpu").predict(
        ["imports of fish " * 7], scorer="hybrid"
    )
    assert (prediction.num_tokens, prediction.truncated) == (23, False)


def test_a_run_that_was_broken_after_a_refresh_goes_on_to_the_same_digest(
    trained_with_everything, train_in, everything, tiny_corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr(stages, "_CHECKPOINT_EVERY_S", 0.0)
    take, calls = stages._train_step, []

    def broken(*arguments):
        if len(calls) == 16 + 5:  # 16 steps of the classifier; mined before the fourth one here
            raise KeyboardInterrupt
        calls.append(1)
        return take(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(stages, "_train_step", broken)
        with pytest.raises(KeyboardInterrupt):
            train_in(tmp_path, everything, tiny_corpus)
    mined = tmp_path / "work" / "retrieval-mined"
    assert [path.name for path in mined.iterdir()] == ["3.safetensors"]
    resumed = train_in(tmp_path, everything, tiny_corpus)
    assert resumed.bundle.manifest.digest == trained_with_everything.bundle.manifest.digest


# ---- what is refused ----


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"document_max_tokens": 24, "windows": {"overlap": 13}},
            "windows.overlap is 13, but document_max_tokens is 24; wanted at most half of it",
        ),
        ({"windows": {"most": 1}}, "windows.most: Input should be greater than or equal to 2"),
        ({"windows": {"pool": "sum"}}, "windows.pool: Input should be 'mean' or 'max'"),
        (
            {"windows": {"most": 5}, "retrieval": {"batch_tokens": 512}},
            "retrieval.batch_tokens is 512, but document_max_tokens is 128, in 5 windows; wanted",
        ),
    ],
)
def test_windows_of_impossible_sizes_are_refused(content, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_config(None, content)


def test_without_an_encoder_windows_are_only_ignored():
    content = {"scorers": ["sparse"], "windows": {"overlap": 8192}}
    config = TrainingConfig.model_validate(content)
    assert config.keys_ignored("text") == ["windows"]
    assert "windows" not in config.settings_used("text")
