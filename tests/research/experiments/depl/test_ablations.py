"""The settings of the ablations: what each changes, what is shared, and what can't be had."""

from dataclasses import replace

import numpy as np
import pytest

from longtail.models.encoders.dual_encoder import encode_all
from longtail.models.encoders.tokens import tokenize_texts
from longtail.models.kinds.storage import read_parts
from longtail.models.parts.dense_storage import read_dual_encoder
from longtail.models.parts.model_parts import RETRIEVAL_FILE
from research.experiments.depl.ablations import configured


def test_a_bundle_encodes_labels_as_its_training_did(tiny_corpus, tiny_config, train_in, tmp_path):
    config = configured(tiny_config, "cls_labels", 0)
    bundle = train_in(tmp_path, config, tiny_corpus).bundle
    encoder, dense = read_dual_encoder(bundle), read_parts(bundle).dense
    texts = [label.pseudo_description for label in bundle.catalogue]
    tokens = tokenize_texts(dense.tokenizer, texts, config.descriptions.max_tokens)
    pad_id = int(dense.tokenizer.pad_token_id)
    stored = bundle.tensors(RETRIEVAL_FILE)["label_vectors"]
    assert encode_all(encoder, tokens, "label", pad_id=pad_id) == pytest.approx(stored, abs=1e-5)
    assert encoder.head.label_pooling == "cls"
    encoder.head = replace(encoder.head, label_pooling="mean")
    other = encode_all(encoder, tokens, "label", pad_id=pad_id)
    assert np.abs(other - stored).max() > 1e-2
