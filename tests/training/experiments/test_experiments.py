"""Trials that are kept, an experiment that goes on, and what is reported of it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from models.errors import ConfigError
from training.experiments.trials import (
    Estimate,
    Trial,
    choose_settings,
    error_or_nan,
    found_to_json,
    new_figure,
    run_trials,
    settings_table,
    write_experiment,
)

TRIALS = [Trial("task", name, seed) for seed in range(2) for name in ("b", "a")]


def figures(trial: Trial) -> dict[str, float]:
    return {"x": 0.25 + 0.5 * trial.seed, "y": float(trial.setting == "a")}


def test_figures_are_collected_by_task_and_setting_in_the_order_of_the_trials(tmp_path):
    found = run_trials(tmp_path, {"n": 1}, TRIALS, figures)
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
        run_trials(tmp_path, {"n": 1}, TRIALS, failing)
    found = run_trials(tmp_path, {"n": 1}, TRIALS, failing)
    assert ran == [*TRIALS[:3], *TRIALS[2:]]
    assert found == run_trials(tmp_path / "other", {"n": 1}, TRIALS, figures)


def test_trials_of_an_earlier_run_are_reported_too(tmp_path):
    run_trials(tmp_path, {"n": 1}, TRIALS, figures)
    found = run_trials(tmp_path, {"n": 1}, [Trial("other", "a", 0)], figures)
    assert list(found) == ["other", "task"]
    assert found["task"]["a"]["x"] == Estimate((0.25, 0.75))


def test_a_folder_with_another_experiment_is_refused(tmp_path):
    run_trials(tmp_path, {"n": (1, 2), "split": "dev"}, TRIALS, figures)
    run_trials(tmp_path, {"n": [1, 2], "split": "dev"}, TRIALS, figures)
    with pytest.raises(ConfigError, match=r"another experiment \(its n, split differs\)"):
        run_trials(tmp_path, {"n": 3, "split": "test"}, TRIALS, figures)


def test_mean_and_standard_error():
    values = (0.1, 0.4, 0.2, 0.5)
    estimate = Estimate(values)
    assert estimate.mean == pytest.approx(0.3)
    assert estimate.standard_error == pytest.approx(np.std(values, ddof=1) / 2)
    assert str(estimate) == "30.00 ± 9.13"
    assert Estimate((0.5,)).standard_error is None
    assert str(Estimate((0.5,))) == "50.00"


def test_a_single_seed_has_no_error_bar():
    assert math.isnan(error_or_nan(Estimate((0.5,))))
    assert error_or_nan(Estimate((0.4, 0.6))) == pytest.approx(0.1)


def test_settings_are_chosen_by_name_in_their_own_order():
    assert choose_settings("abc", None) == ["a", "b", "c"]
    assert choose_settings("abc", "c, a") == ["a", "c"]
    with pytest.raises(ConfigError, match="'x', 'y' came, wanted some of a, b, c"):
        choose_settings("abc", "x,a,y")


def test_a_table_has_a_row_a_setting_and_a_dash_for_what_it_has_not():
    settings = {"one": {"x": Estimate((0.5, 0.5))}, "two": {"y": Estimate((0.25,))}}
    rows = settings_table(settings, ["x", "y"]).splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert cells[0] == ["setting", "seeds", "x", "y"]
    assert cells[2:] == [["one", "2", "50.00 ± 0.00", "-"], ["two", "1", "-", "25.00"]]


def test_what_is_written_says_how_it_was_made(tmp_path):
    found = run_trials(tmp_path, {"n": 1}, TRIALS, figures)
    paths = write_experiment(tmp_path, found, "text\n", new_figure(1.0, 1.0), {"n": 1})
    content = json.loads(paths[0].read_text())
    assert content == {"configuration": {"n": 1}, "results": found_to_json(found)}
    assert content["results"]["task"]["a"]["x"]["values"] == [0.25, 0.75]
    assert paths[1].read_text() == "text\n"
    assert paths[2].read_bytes().startswith(b"\x89PNG")
