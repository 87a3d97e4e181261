"""What an encoder is tried in, and what is said of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from longtail.models.encoders.dual_encoder import DualEncoder
from longtail.models.encoders.tokens import TokenizedTexts
from longtail.models.encoders.trial import (
    PRECISIONS,
    Failure,
    Trial,
    TriedEncoder,
    automatic_precision,
    try_precisions,
)

CONFIG = BertConfig(
    vocab_size=120, hidden_size=32, intermediate_size=48,
    num_hidden_layers=2, num_attention_heads=2,
)  # fmt: skip


def read():
    torch.manual_seed(0)
    return DualEncoder(BertModel(CONFIG)).eval()


@pytest.fixture
def encoder(tmp_path):
    lengths = [3, 9, 40, 2]
    ids = np.random.default_rng(0).integers(3, 100, sum(lengths)).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    counts = np.array(lengths, dtype=np.int64)
    return TriedEncoder(read, tmp_path, TokenizedTexts(ids, offsets, counts, counts), 0)


def test_each_precision_is_timed_and_compared_with_float32(encoder, monkeypatch):
    monkeypatch.setattr("longtail.models.encoders.onnx.find_spec", lambda name: None)
    found = {each.precision: each for each in try_precisions(encoder, seconds=0.01)}
    assert list(found) == list(PRECISIONS)
    exact, rounded = found["float32"], found["bfloat16"]
    assert isinstance(exact, Trial) and isinstance(rounded, Trial)
    assert exact.distance < 1e-5 < rounded.distance < 0.1
    for each in (exact, rounded):
        assert each.short_text_ms > 0 and each.texts_per_second > 0


def test_what_can_not_be_tried_says_why(encoder, monkeypatch):
    monkeypatch.setattr("longtail.models.encoders.onnx.find_spec", lambda name: None)
    (found,) = try_precisions(encoder, ["onnx-int8"], seconds=0.01)
    assert isinstance(found, Failure)
    assert "is not installed" in found.reason


@pytest.mark.parametrize(("has_it", "name"), [(True, "bfloat16"), (False, "float32")])
def test_the_automatic_precision_is_that_of_the_instructions(monkeypatch, has_it, name):
    monkeypatch.setattr("longtail.models.encoders.pretrained._has_bfloat16", lambda: has_it)
    assert automatic_precision() == name
