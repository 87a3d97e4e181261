"""Trials that are kept, an experiment that resumes, and what is reported of it."""

import pytest

from research.experiments.trials import Trial, TrialStore

TRIALS = [Trial("task", name, seed) for seed in range(2) for name in ("b", "a")]


def figures(trial: Trial) -> dict[str, float]:
    return {"x": 0.25 + 0.5 * trial.seed, "y": float(trial.setting == "a")}


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
