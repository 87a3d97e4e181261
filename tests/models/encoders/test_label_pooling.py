"""Labels pooled by the mean of their tokens or by [CLS], and what a bundle says of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from longtail.models.bundle.bundle import open_bundle
from longtail.models.encoders.dual_encoder import DEPL_HEAD, DualEncoder, encode_all
from longtail.models.encoders.tokens import TokenizedTexts, tokenize_texts
from longtail.models.encoders.vector_head import pooled
from longtail.models.errors import BundleCorruptError
from longtail.models.parts.dense_storage import read_dual_encoder
from longtail.models.parts.storage import write_parts

TEXTS = ["river", "law trade steel", "the court and the port"]


@pytest.fixture
def tokens(tokenizer) -> TokenizedTexts:
    return tokenize_texts(tokenizer, TEXTS, 30)


@pytest.fixture
def cls_encoder(dual_encoder: DualEncoder) -> DualEncoder:
    encoder = copy.deepcopy(dual_encoder)
    encoder.head = replace(encoder.head, label_pooling="cls")
    return encoder


@pytest.fixture
def bundle_with(parts, manifest, tmp_path) -> Callable:
    def write(pooling: object):
        training = manifest.training | {"retrieval": {"label_pooling": pooling}}
        write_parts(tmp_path / "b", parts, replace(manifest, training=training), tmp_path / "s")
        return open_bundle(tmp_path / "b")

    return write


def test_cls_pooling_reads_the_first_token_of_each_text(cls_encoder, tokens):
    found = encode_all(cls_encoder, tokens, "label", pad_id=0)
    with torch.inference_mode():
        for row in range(len(tokens)):
            ids = torch.tensor(tokens.ids[tokens.offsets[row] : tokens.offsets[row + 1]])[None]
            first = cls_encoder.transformer(input_ids=ids).last_hidden_state[0, 0]
            wanted = cls_encoder.label_pooler(first).numpy()
            np.testing.assert_allclose(found[row], wanted, atol=1e-5)


def test_documents_are_pooled_as_ever(dual_encoder, cls_encoder, tokens):
    pair = [encode_all(each, tokens, "document", pad_id=0) for each in (dual_encoder, cls_encoder)]
    assert np.array_equal(*pair)


def test_a_bundle_without_a_word_of_it_has_the_mean(bundle):
    assert read_dual_encoder(bundle).head == DEPL_HEAD


def test_the_mean_over_words_leaves_out_the_special_tokens_at_both_ends(dual_encoder, tokens):
    encoder = copy.deepcopy(dual_encoder)
    encoder.head = replace(encoder.head, label_pooling="words")
    found = encode_all(encoder, tokens, "label", pad_id=0)
    with torch.inference_mode():
        for row in range(len(tokens)):
            ids = torch.tensor(tokens.ids[tokens.offsets[row] : tokens.offsets[row + 1]])[None]
            assert ids.shape[1] == len(TEXTS[row].split()) + 2
            words = encoder.transformer(input_ids=ids).last_hidden_state[0, 1:-1]
            wanted = encoder.label_pooler(words.mean(dim=0)).numpy()
            np.testing.assert_allclose(found[row], wanted, atol=1e-5)


def test_a_text_without_words_has_the_mean_of_its_special_tokens():
    hidden = torch.arange(24.0).reshape(2, 3, 4)
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert torch.equal(pooled(hidden, mask, "words"), pooled(hidden, mask, "mean"))


@pytest.mark.parametrize("pooling", ["mean", "words", "cls", "last"])
def test_a_bundle_pools_labels_as_its_training_did(bundle_with, pooling):
    assert read_dual_encoder(bundle_with(pooling)).head.label_pooling == pooling


def test_another_pooling_is_refused(bundle_with: Callable[[object], Path]):
    with pytest.raises(BundleCorruptError, match="label_pooling 'max', expected one of"):
        read_dual_encoder(bundle_with("max"))
