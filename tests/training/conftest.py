"""What tests of neural training share: the tiny corpus as tokens, a fresh model, label subsets."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail.models.encoders.dual_encoder import DualEncoder
from longtail.models.encoders.pretrained import load_tokenizer, load_transformer
from longtail.models.encoders.tokens import tokenize_texts
from longtail.training.data.dataset import open_dataset
from longtail.training.neural.batching import LabelSubsets
from longtail.training.neural.model import DeplModel, TrainingTexts


@pytest.fixture(scope="session")
def texts(tiny_corpus, tiny_encoder):
    """Documents of up to 24 tokens, and the names of the labels."""
    dataset = open_dataset(tiny_corpus)
    tokenizer = load_tokenizer(tiny_encoder)
    split = dataset.split("train")
    return TrainingTexts(
        documents=tokenize_texts(tokenizer, list(split.texts()), 24),
        labels=tokenize_texts(tokenizer, [label.name for label in dataset.catalogue], 8),
        truth=split.scan().labels,
        pad_id=0,
    )


@pytest.fixture(scope="session")
def priors(texts):
    counts = np.asarray(texts.truth.sum(axis=0), dtype=np.float32)
    return (counts + np.float32(0.5)) / np.float32(texts.truth.shape[0] + 1)


@pytest.fixture
def new_model(tiny_encoder, priors):
    return lambda: DeplModel(DualEncoder(load_transformer(tiny_encoder)), priors)


@pytest.fixture
def subsets(texts):
    hard = np.random.default_rng(0).integers(0, texts.truth.shape[1], (60, 3))
    return LabelSubsets(texts.truth, hard, 80)


@pytest.fixture
def write_feedback(tmp_path):
    """Writes lines of feedback to a file."""

    def write(*lines: Mapping[str, Any] | str) -> Path:
        path = tmp_path / "feedback.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        return path

    return write
