"""The experiment on negative mining: its settings, its figures and its report."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.training.learning.objectives import SamplerInputs, make_objective
from longtail.training.losses import MiningLoss
from research.experiments.data import ExperimentData, Part
from research.experiments.negative_mining import (
    NegativeMiningPlan,
    draw_negative_mining,
    learning_config,
    negative_mining_record,
    run_negative_mining,
)
from research.experiments.trials import Estimate, Trial

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


def test_trials_are_table_2_and_then_the_curve_seed_by_seed():
    plan = NegativeMiningPlan(num_sampled=32, ranks=(1, 16, 64), curve_ranks=(1, 16))
    assert plan.settings == ("top_1", "top_16", "plain")
    trials = plan.trials(2, plan.settings, num_labels=100)
    assert len(trials) == 2 * 7
    assert [(trial.task, trial.setting) for trial in trials[:7]] == [
        ("B=32", "top_1"),
        ("B=32", "top_16"),
        ("B=32", "plain"),
        ("B=2", "top_1"),
        ("B=2", "plain"),
        ("B=8", "top_1"),
        ("B=8", "plain"),
    ]  # fmt: skip; 4 x 32 is more than there are labels
    assert {trial.seed for trial in trials[7:]} == {1}
    assert [trial.task for trial in plan.trials(1, ["top_1"], 200)][-1] == "B=128"


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


def test_the_report_has_ratios_where_there_is_plain_sampling_and_a_curve():
    def settings(*names: str) -> dict[str, dict[str, Estimate]]:
        columns = [f"{name}@{k}" for name in ("R", "P") for k in (1, 3, 5)]
        values = {"top_1": (0.4, 0.6), "plain": (0.2, 0.2)}
        return {name: dict.fromkeys(columns, Estimate(values[name])) for name in names}

    found = {"B=64": settings("top_1", "plain"), "B=16": settings("top_1")}
    (ratios,) = negative_mining_record(found)["ratios"]["rows"]
    assert ratios[:2] == ["B=64", "top_1"]
    assert ratios[3] == {"mean": 2.5, "digits": 2, "standard_error": pytest.approx(0.5)}
    left, right = draw_negative_mining(found).axes
    assert (left.get_ylabel(), right.get_ylabel()) == ("R@5 (%)", "P@1 (%)")
    (curve,) = [each for each in left.containers if each.get_label() == "top_1"]
    assert curve.lines[0].get_xydata().tolist() == [[16, 50], [64, 50]]
