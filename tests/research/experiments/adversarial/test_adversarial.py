"""The learning curves of linear scorers: what is trained, counted, tuned and judged."""

from dataclasses import replace

import pytest

from research.experiments.adversarial.run import run_task
from research.experiments.adversarial.tasks import MixtureProblem
from research.experiments.adversarial.trial_runner import (
    CRITERIA,
    FIGURES,
    TREE,
    TRUE,
    AdversarialPlan,
    TrialRunner,
    curve_points,
    name_at,
    tuning_name,
)
from research.experiments.adversarial.tuning import METHODS, Candidate
from research.experiments.trials import TrialStore

PLAN = AdversarialPlan(
    num_steps=40, num_points=4, batch_size=50, num_components=3, tree_regulariser=1.0, num_rounds=0
)


@pytest.fixture(scope="module")
def task():
    """A mixture of few labels, with many documents each."""
    return MixtureProblem(12, documents_a_label=40, dim=6).make(200)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns(method, task):
    runner = TrialRunner(task, PLAN, "cpu", tree_regulariser=1.0)
    values = runner.run_candidate(Candidate.start(method), 0)
    steps = [values[name_at("steps", number)] for number in range(5)]
    assert steps == curve_points(PLAN.steps_of(method), 4)
    assert set(values) == {
        *(name_at(figure, number) for figure in FIGURES for number in range(5)),
        *(tuning_name(criterion) for criterion in CRITERIA),
    }
    assert values["log_likelihood 4"] > values["log_likelihood 0"]
    assert values["accuracy 4"] > 0.3  # the commonest label's share is a sixth
    assert abs(values["tuning accuracy"] - values["accuracy 4"]) < 0.15


@pytest.mark.slow
def test_no_method_beats_p_data_and_softmax_comes_close(task):
    runner = TrialRunner(task, replace(PLAN, num_steps=1200, num_points=1), "cpu")
    assert runner.run_true()["log_likelihood"] == task.true.log_likelihood
    found = runner.run_candidate(Candidate("softmax", -1, 0), 0)["log_likelihood 1"]
    assert task.true.log_likelihood - 0.2 < found < task.true.log_likelihood + 0.02


def test_the_adversarial_curve_starts_at_the_tree_alone(task):
    runner = TrialRunner(task, PLAN, "cpu")
    tree = runner.run_tree()
    start = runner.run_candidate(Candidate.start("adversarial"), 0)
    for name in ("log_likelihood", "accuracy"):
        assert tree[name] == start[name_at(name, 0)]
    assert tree["regulariser"] == 1.0


@pytest.mark.slow
def test_a_task_is_tuned_with_one_seed_and_its_best_run_with_all(task, tmp_path):
    runner = TrialRunner(task, replace(PLAN, num_rounds=1, num_points=1, num_steps=4), "cpu")
    run_task(TrialStore(tmp_path, {}), runner, ["adversarial", "frequency"], 3)
    settings = TrialStore(tmp_path, {}).read()[task.name]
    assert {TREE, TRUE} < set(settings)
    for method in ("adversarial", "frequency"):
        own = {name: settings[name] for name in settings if name.startswith(f"{method}-")}
        assert len(own) >= 5  # the start, and a neighbour each way of both axes
        for worth in ("tuning accuracy", "tuning log_likelihood"):
            best = max(figures[worth].values[0] for figures in own.values())
            repeated = [f[worth].values for f in own.values() if len(f[worth].values) == 3]
            assert best in [values[0] for values in repeated]
            assert len(repeated) <= 2
