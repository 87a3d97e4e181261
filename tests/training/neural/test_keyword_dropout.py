"""Labels that a step reads without their keywords."""

from __future__ import annotations

import numpy as np
import pytest

from longtail.models.encoders.pretrained import load_tokenizer
from longtail.models.encoders.tokens import tokenize_texts
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import open_dataset
from longtail.training.neural.model import KEYWORD_DROPOUT
from longtail.training.pipeline.dense import read_training_texts
from longtail.training.pipeline.encoder_start import start_dense

LABELS = np.arange(4, 30)


@pytest.fixture
def read(tiny_corpus, tiny_encoder):
    """Returns the training texts of labels that all have the keyword `fishery`."""
    config = TrainingConfig.model_validate({
        "encoder": str(tiny_encoder), "document_max_tokens": 24, "retrieval": {"epochs": 1},
    })  # fmt: skip
    dataset = open_dataset(tiny_corpus)
    truth = dataset.split("train").scan().labels
    catalogue = dataset.catalogue
    catalogue = catalogue.replaced(
        pseudo_description=[f"{label.name}. fishery" for label in catalogue]
    )
    start, documents = start_dense(config, truth), dataset.split("train").texts()
    return read_training_texts(start, config, documents, catalogue, truth), catalogue


def rows_of(batch) -> list[list[int]]:
    return [ids[mask > 0].tolist() for ids, mask in zip(batch.ids, batch.mask, strict=True)]


def test_each_label_is_read_with_or_without_its_keywords(read, tiny_encoder):
    texts, catalogue = read
    tokenizer = load_tokenizer(tiny_encoder)

    def ids_of(text: str) -> list[int]:
        return tokenize_texts(tokenizer, [text], 64).ids.tolist()

    num_bare, num_drawn = 0, 0
    for seed in range(20):
        rows = rows_of(texts.label_batch(LABELS, np.random.default_rng(seed), "cpu"))
        for label, ids in zip(LABELS.tolist(), rows, strict=True):
            bare, whole = ids_of(catalogue[label].name), ids_of(f"{catalogue[label].name}. fishery")
            assert ids in (bare, whole)
            num_bare += ids == bare
            num_drawn += 1
    share = KEYWORD_DROPOUT
    assert abs(num_bare / num_drawn - share) < 4 * np.sqrt(share * (1 - share) / num_drawn)


def test_the_same_draws_give_the_same_batch(read):
    texts, _ = read
    first, second, other = (
        rows_of(texts.label_batch(LABELS, np.random.default_rng(seed), "cpu")) for seed in (7, 7, 8)
    )
    assert first == second != other
