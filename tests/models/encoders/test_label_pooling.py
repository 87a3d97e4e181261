"""Labels pooled by the mean of their tokens or by [CLS], and what a bundle says of it."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from longtail.models.bundle.bundle import open_bundle
from longtail.models.encoders.dual_encoder import encode_all
from longtail.models.encoders.tokens import tokenize_texts
from longtail.models.kinds.storage import write_parts
from longtail.models.parts.dense_storage import read_dual_encoder

TEXTS = ["river", "law trade steel", "the court and the port"]


@pytest.fixture
def tokens(tokenizer):
    return tokenize_texts(tokenizer, TEXTS, 30)


@pytest.fixture
def cls_encoder(dual_encoder):
    encoder = copy.deepcopy(dual_encoder)
    encoder.head = replace(encoder.head, label_pooling="cls")
    return encoder


@pytest.fixture
def bundle_with(parts, manifest, tmp_path):
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


@pytest.mark.parametrize("pooling", ["mean", "words", "cls", "last"])
def test_a_bundle_pools_labels_as_its_training_did(bundle_with, pooling):
    assert read_dual_encoder(bundle_with(pooling)).head.label_pooling == pooling
