"""Rates: a group for each part of the model, and the schedules; layers frozen or computed twice."""

import numpy as np
import pytest
import torch

from longtail.training.configuration.sections import ClassifierConfig
from longtail.training.neural.model import begin_training, checkpoint_gradients, make_optimizer

CONFIG = ClassifierConfig(encoder_learning_rate=1e-3)


def test_transformer_poolers_and_classifier_have_rates_of_their_own(new_model):
    model = new_model()
    groups = make_optimizer(model, CONFIG).param_groups
    assert [group["peak"] for group in groups] == [
        CONFIG.encoder_learning_rate, CONFIG.pooler_learning_rate, CONFIG.classifier_learning_rate
    ]  # fmt: skip
    parameters = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(parameters) == sorted(id(parameter) for parameter in model.parameters())


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_nothing_is_dropped_in_training(new_model, texts, is_checkpointed):
    model = new_model()
    batch = texts.documents.batch(np.arange(4), 0, "cpu")
    if is_checkpointed:
        checkpoint_gradients(model.encoder)
    begin_training(model)
    assert torch.equal(model.encode(batch, "document"), model.encode(batch, "document"))
