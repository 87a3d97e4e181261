"""What is reported of learning curves: the best candidates, times to a target, table, picture."""

import math

import numpy as np
import pytest

from research.experiments.adversarial.curves import Curve, quickest, time_to_level
from research.experiments.adversarial.run import best_candidates
from research.experiments.adversarial.trial_runner import FIGURES, TREE, name_at
from research.experiments.adversarial.tuning import Candidate
from research.experiments.trials import Estimate

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
