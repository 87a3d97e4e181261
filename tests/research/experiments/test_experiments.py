"""Trials that are kept, an experiment that resumes, and what is reported of it."""

import json

import pytest

from longtail.models.errors import ConfigError
from research.experiments.trials import (
    Estimate,
    Trial,
    TrialStore,
)

TRIALS = [Trial("task", name, seed) for seed in range(2) for name in ("b", "a")]


def figures(trial: Trial) -> dict[str, float]:
    return {"x": 0.25 + 0.5 * trial.seed, "y": float(trial.setting == "a")}


def test_figures_are_collected_by_task_and_setting_in_the_order_of_the_trials(tmp_path):
    found = TrialStore(tmp_path, {"n": 1}).run(TRIALS, figures)
    assert list(found["task"]) == ["b", "a"]
    assert found["task"]["b"] == {"x": Estimate((0.25, 0.75)), "y": Estimate((0.0, 0.0))}
    kept = json.loads((tmp_path / "trials" / "task.a.1.json").read_text())
    assert kept["values"] == {"x": 0.75, "y": 1.0}
    assert kept["seconds"] >= 0


def test_a_stopped_experiment_goes_on_with_what_is_missing(tmp_path):
    ran = []

    def failing(trial: Trial) -> dict[str, float]:
        ran.append(trial)
        if len(ran) == 3:
            raise KeyboardInterrupt
        return figures(trial)

    with pytest.raises(KeyboardInterrupt):
        TrialStore(tmp_path, {"n": 1}).run(TRIALS, failing)
    found = TrialStore(tmp_path, {"n": 1}).run(TRIALS, failing)
    assert ran == [*TRIALS[:3], *TRIALS[2:]]
    assert found == TrialStore(tmp_path / "other", {"n": 1}).run(TRIALS, figures)


def test_a_folder_with_another_experiment_is_refused(tmp_path):
    TrialStore(tmp_path, {"n": (1, 2), "split": "dev"}).run(TRIALS, figures)
    TrialStore(tmp_path, {"n": [1, 2], "split": "dev"}).run(TRIALS, figures)
    with pytest.raises(ConfigError, match=r"another experiment \(its n, split differs\)"):
        TrialStore(tmp_path, {"n": 3, "split": "test"}).run(TRIALS, figures)
