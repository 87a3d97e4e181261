"""The experiment on negative mining: its settings, its figures and its report."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.training.learning.objectives import SamplerInputs, make_objective
from longtail.training.losses import MiningLoss
from research.experiments.data import ExperimentData, Part
from research.experiments.negative_mining import (
    NegativeMiningPlan,
    learning_config,
    run_negative_mining,
)
from research.experiments.trials import Trial

PLAN = NegativeMiningPlan(epochs=3, num_sampled=6, ranks=(1, 4, 9), batch_size=8, width=16)
L = 10


@pytest.fixture(scope="module")
def data():
    """Each document carries one label, told by a word."""

    def part(size: int) -> Part:
        labels = np.arange(size) % L
        words = np.eye(L, dtype=np.float32)[labels]
        return Part(csr_array(words), csr_array(words))

    return ExperimentData(part(80), part(20))


@pytest.mark.parametrize(("setting", "rank"), [("top_1", 1), ("top_4", 4), ("plain", 6)])
def test_the_hardest_cost_their_mean(setting, rank):
    config = learning_config(Trial("B=6", setting, 0))
    objective = make_objective(config, SamplerInputs(np.ones(L, dtype=np.int64), "cpu"))
    assert isinstance(objective.loss, MiningLoss)
    assert objective.loss.rank_weights == rank * (1 / rank,)
    assert config.negatives.num_negatives == 6 and config.negatives.shared


@pytest.mark.parametrize("setting", PLAN.settings)
def test_every_setting_learns_and_follows_from_the_seed(setting, data):
    trial = Trial("B=6", setting, 0)
    found = run_negative_mining(data, PLAN, trial, 0.02, "cpu")
    assert found["R@1"] == found["P@1"] > 0.5
    assert found == run_negative_mining(data, PLAN, trial, 0.02, "cpu")
