"""The learning curves of linear scorers: what is trained, counted, tuned and judged."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import logsumexp

from research.experiments.adversarial.curves import Curve, quickest, time_to_level
from research.experiments.adversarial.run import best_candidates, run_task
from research.experiments.adversarial.tasks import CORPUS_TASKS, MixtureProblem, corpus_tasks
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
from research.experiments.data import ExperimentData, Part
from research.experiments.trials import Estimate, TrialStore

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


UNIFORM, ADVERSARIAL = Candidate("uniform", -3, 3), Candidate("adversarial", -2, 0)


def figures(seconds, accuracies, tuned: float, num_seeds: int = 1) -> dict[str, Estimate]:
    """Two points or more; a second on the wall is two of CPU, and seeds are alike."""
    values = {"tuning accuracy": tuned, "tuning log_likelihood": -tuned}
    for number, (second, accuracy) in enumerate(zip(seconds, accuracies, strict=True)):
        point = (10.0 * number, float(second), second / 2, -4 + accuracy, accuracy)
        values |= {name_at(f, number): x for f, x in zip(FIGURES, point, strict=True)}
    return {name: Estimate((value,) * num_seeds) for name, value in values.items()}


def tree(seconds: float) -> dict[str, Estimate]:
    values = {
        "regulariser": 10.0, "cpu_s": seconds, "wall_s": seconds / 2, "log_likelihood": -4.0,
        "accuracy": 0.25,
    }  # fmt: skip
    return {name: Estimate((value,)) for name, value in values.items()}


SETTINGS = {
    TREE: tree(1.0),
    UNIFORM.setting: figures([0, 4, 8], [0.1, 0.3, 0.5], 0.5, num_seeds=2),
    ADVERSARIAL.setting: figures([0, 1, 3], [0.25, 0.45, 0.65], 0.6, num_seeds=2),
    Candidate("adversarial", -1, 0).setting: figures([0, 1, 2], [0.25, 0.4, 0.4], 0.4),
    Candidate("adversarial", 9, 0).setting: {"tuning accuracy": Estimate((0.9,))},
}


def test_when_an_accuracy_is_reached_is_read_off_between_points():
    curve = Curve(np.array([1.0, 2.0, 4.0]), np.array([0.2, 0.1, 0.5]))
    assert curve.seconds_to(0.1) == 1
    assert curve.seconds_to(0.3) == 3
    assert curve.seconds_to(0.5) == 4
    assert curve.seconds_to(0.51) == math.inf


QUICK = Candidate("uniform", -1, 3)
WITH_QUICK = SETTINGS | {QUICK.setting: figures([0, 1, 8], [0.1, 0.48, 0.49], 0.49)}


def test_a_method_is_timed_with_the_candidate_that_is_quickest_to_the_level_not_best_at_the_end():
    assert best_candidates(WITH_QUICK, "accuracy")["uniform"] == UNIFORM
    assert quickest(WITH_QUICK, "uniform", "accuracy", 0.46) == QUICK
    assert quickest(WITH_QUICK, "uniform", "accuracy", 0.496) == UNIFORM
    found = time_to_level(WITH_QUICK, "uniform", "accuracy", 0.9, "cpu")
    assert found.candidate == QUICK
    # The second seed has the slow candidate alone: from 0.3 after 4 s to 0.5 after 8 s.
    assert found.seconds.by_seed == pytest.approx({0: 0.36 / 0.38, 1: 7.2})
    assert found.quotient.values == (1, 1)
    found = time_to_level(WITH_QUICK, "adversarial", "accuracy", 0.9, "cpu")
    # 0.46 lies a twentieth of the way from 0.45, after 2 s, to 0.65, after 4 s.
    assert found.seconds.values == pytest.approx([2.1, 2.1])
    assert found.quotient.by_seed == pytest.approx({0: 0.36 / 0.38 / 2.1, 1: 7.2 / 2.1})


TRUTH = np.array(
    [[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 0, 1], [1, 0, 0, 0, 0], [1, 0, 0, 1, 0]],
    dtype=np.float32,
)


def data(measured: np.ndarray = TRUTH) -> ExperimentData:
    rng = np.random.default_rng(0)
    features = [rng.random((len(x), 7), dtype=np.float32) for x in (TRUTH, measured)]
    return ExperimentData(
        Part(csr_array(features[0]), csr_array(TRUTH)),
        Part(csr_array(features[1]), csr_array(measured)),
    )


def test_the_first_label_alone_is_kept_and_labels_without_pairs_go():
    tasks = list(corpus_tasks(data(), CORPUS_TASKS, dim=3, num_judged=2))
    assert [task.name for task in tasks] == ["first_label", "all_labels"]
    wanted = np.zeros((5, 3), dtype=np.float32)
    wanted[np.arange(5), [0, 1, 2, 0, 0]] = 1
    np.testing.assert_array_equal(tasks[0].truth.todense(), wanted)
    np.testing.assert_array_equal(tasks[1].truth.todense(), TRUTH)


def test_vectors_are_the_truncated_svd_at_a_mean_square_of_one():
    given = data()
    (task,) = corpus_tasks(given, ["all_labels"], dim=3, num_judged=2)
    left, singular, _ = np.linalg.svd(given.train.features.todense())
    wanted = left[:, :3] * singular[:3]
    wanted /= np.sqrt(np.mean(wanted**2))
    np.testing.assert_allclose(task.vectors @ task.vectors.T, wanted @ wanted.T, atol=1e-4)
    assert np.mean(task.vectors**2) == pytest.approx(1)


def test_documents_to_tune_on_are_none_to_measure_on_and_all_have_a_label():
    measured = np.vstack([TRUTH, 0 * TRUTH, TRUTH])
    given = data(measured)
    (task,) = corpus_tasks(given, ["all_labels"], dim=3, num_judged=4)
    both = np.vstack([task.tuning.vectors, task.measured.vectors])
    assert len(np.unique(both, axis=0)) == len(both) == 8
    for exam in (task.tuning, task.measured):
        assert np.diff(exam.truth.indptr).all()


def test_the_mixture_is_judged_by_the_densities_of_its_labels():
    problem = MixtureProblem(6, documents_a_label=50, dim=4)
    task = problem.make(2000)
    rng = np.random.default_rng([0, 6])
    priors = rng.permutation(np.arange(1, 7) ** -0.5)
    labels = rng.choice(6, 300, p=priors / priors.sum())
    assert len(np.unique(labels)) == 6
    means = problem._means(rng)
    squares = ((task.measured.vectors[:, None] - means) ** 2).sum(axis=2)
    log_joint = np.log(priors) - squares / 2
    log_probs = log_joint - logsumexp(log_joint, axis=1, keepdims=True)
    own = task.measured.truth.indices
    wanted = log_probs[np.arange(2000), own].mean()
    assert task.true.log_likelihood == pytest.approx(wanted, rel=1e-4)
    assert task.true.accuracy == (log_joint.argmax(axis=1) == own).mean()
