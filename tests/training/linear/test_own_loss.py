"""A new loss is one class: registered, then named in a configuration, refused, trained with."""

from typing import Literal

import numpy as np
import pytest
import torch
from pydantic import Field
from scipy.sparse import csr_array
from torch import Tensor

from longtail.models.errors import ConfigError
from longtail.training.configuration import learning
from longtail.training.configuration.learning import LossOverPairs, LossOverSubset, register
from longtail.training.configuration.run import TrainingConfig, read_config
from longtail.training.learning.objectives import make_subset_loss
from longtail.training.linear.stage import train_linear_scorer

LOSS = {"kind": "beyond_margin", "margin": 0.5}
ABOVE = {"kind": "mean_above"}


@pytest.fixture(autouse=True)
def losses():
    """Two losses of another package."""

    @register
    class BeyondMargin(LossOverPairs):
        kind: Literal["beyond_margin"] = "beyond_margin"
        margin: float = Field(default=1.0, gt=0)

        def formula(self, num_labels: int, num_negatives: int):
            del num_labels, num_negatives

            def loss(positive: Tensor, negatives: Tensor, log_weights: Tensor) -> Tensor:
                excess = (self.margin - positive[:, None] + negatives).clamp(min=0)
                return (log_weights.exp() * excess).sum(dim=1).mean()

            return loss

    @register
    class MeanAbove(LossOverSubset):
        kind: Literal["mean_above"] = "mean_above"

        def formula(self):
            return lambda scores, is_positive: scores[~is_positive].mean()

    yield [BeyondMargin, MeanAbove]
    del learning.LOSSES["beyond_margin"], learning.LOSSES["mean_above"]
    learning._any_loss.cache_clear()


def test_it_is_read_and_written_with_its_own_keys():
    config = TrainingConfig.model_validate({"linear": {"loss": LOSS}, "retrieval": {"loss": ABOVE}})
    settings = config.model_dump(mode="json")
    assert (settings["linear"]["loss"], settings["retrieval"]["loss"]) == (LOSS, ABOVE)
    assert TrainingConfig.model_validate(settings) == config


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"linear": {"loss": LOSS | {"margin": 0}}}, "linear.loss.beyond_margin.margin: got 0; "),
        ({"retrieval": {"loss": LOSS}}, "loss 'beyond_margin' needs 'negatives'"),
        ({"linear": {"loss": ABOVE}}, "loss 'mean_above' is taken over the batch's label subset"),
        ({"linear": {"loss": {"kind": "other"}}}, "'beyond_margin', 'mean_above'"),
    ],
)
def test_it_is_refused_as_all_others(content, message):
    with pytest.raises(ConfigError, match=message):
        read_config(None, content)


def test_its_name_is_its_own(losses):
    with pytest.raises(ConfigError, match="loss 'mean_above': there is one of this name"):
        register(losses[1])


def test_linear_scorers_are_trained_with_it(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(8, size=200)
    vectors = rng.standard_normal((8, 6))[labels] + 0.1 * rng.standard_normal((200, 6))
    truth = csr_array((np.ones(200, np.float32), labels, np.arange(201)), shape=(200, 8))
    negatives = {"distribution": {"kind": "all"}, "weighting": "importance"}
    content = {"loss": LOSS, "negatives": negatives, "epochs": 20, "batch_size": 20}
    scorer = train_linear_scorer(
        vectors.astype(np.float32), truth,
        TrainingConfig.model_validate({"linear": content}).linear,
        seed=0, device="cpu", folder=tmp_path,
    )  # fmt: skip
    scores = vectors @ scorer.model.weight.T + scorer.model.bias
    assert (scores.argmax(axis=1) == labels).mean() > 0.95


def test_a_step_over_a_label_subset_costs_what_it_says(losses):
    loss = make_subset_loss(losses[1]())
    scores = torch.tensor([[4.0, 1.0], [3.0, 2.0]])
    assert loss(scores, torch.tensor([[True, False], [False, True]])) == 2.0
