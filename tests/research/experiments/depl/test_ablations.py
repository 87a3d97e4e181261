"""The settings of the ablations: what each changes, what is shared, and what can't be had."""

from dataclasses import replace

import numpy as np
import pytest

from longtail.models.encoders.dual_encoder import encode_all
from longtail.models.encoders.tokens import tokenize_texts
from longtail.models.kinds.storage import read_parts
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.parts.dense_storage import read_dual_encoder
from longtail.models.parts.model_parts import RETRIEVAL_FILE
from longtail.training.configuration.run import TrainingConfig
from research.experiments.depl.ablations import (
    ABLATIONS,
    choose_ablations,
    configured,
)

NAMED = LabelCatalogue([Label("1", "tax"), Label("2", "fish", alternative_names=("cod",))])
WITH_PARENTS = LabelCatalogue([Label("3", "law", parents=("law",)), *NAMED])


def test_what_a_setting_needs_decides_whether_it_is_run():
    everything = [ablation.name for ablation in ABLATIONS]
    assert choose_ablations(None, TrainingConfig(), WITH_PARENTS) == everything
    found = choose_ablations(None, TrainingConfig(), NAMED)
    assert set(everything) - set(found) == {"parents", "names_and_parents"}
    alone = TrainingConfig.model_validate({"scorers": ["retrieval", "sparse"]})
    found = choose_ablations(None, alone, WITH_PARENTS)
    assert set(everything) - set(found) == {"no_classifier"}


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
