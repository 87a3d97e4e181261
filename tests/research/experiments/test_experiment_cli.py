"""`python -m research`: what it writes, that it goes on, and what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from longtail.models.errors import ConfigError
from research.__main__ import app

EXPERIMENTS = ["sampling-bias", "negative-mining", "adversarial", "blend", "depl"]

ROOT = Path(__file__).parents[3]
FILES = ["configuration.json", "results.json", "results.md", "results.png", "trials"]


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)


@pytest.mark.parametrize(
    ("options", "num_trials"),
    [
        (["sampling-bias", "--settings", "within_batch-tail,uniform-constant"], 2 * 3 * 2),
        (["negative-mining", "--settings", "top_1,plain", "--sampled", "32"], 2 * 4 * 2),
    ],
)
def test_an_experiment_writes_its_files_and_goes_on(options, num_trials, tiny_corpus, tmp_path):
    folder = tmp_path / "out"
    places = (tiny_corpus, "--output", folder, "--epochs", 1)
    call(*options, *places, "--seeds", 1)
    trials = {path: path.stat().st_mtime_ns for path in (folder / "trials").iterdir()}
    result = call(*options, *places, "--seeds", 2)
    assert all(path.stat().st_mtime_ns == before for path, before in trials.items())
    assert len(list((folder / "trials").iterdir())) == num_trials == 2 * len(trials)
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert (folder / "results.md").read_text().strip() in result.output
    configuration = json.loads((folder / "configuration.json").read_text())
    assert configuration["experiment"] == options[0]
    assert configuration["split"] == "dev"
    assert configuration["plan"]["epochs"] == 1
    assert json.loads((folder / "results.json").read_text())["configuration"] == configuration
    with pytest.raises(ConfigError, match=re.escape("another experiment (its split differs)")):
        call(*options, *places, "--split", "test")


def test_a_setting_that_is_not_known_is_refused_before_anything_is_written(tiny_corpus, tmp_path):
    with pytest.raises(ConfigError, match="--settings: got 'top_2', expected some of top_1"):
        call("negative-mining", tiny_corpus, "--settings", "top_2", "--output", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_learning_curves_are_drawn_of_a_corpus_and_go_on(tiny_corpus, tmp_path):
    folder = tmp_path / "out"
    options = [
        "--output",
        folder,
        "--settings",
        "tree,uniform,adversarial",
        "--steps",
        2,
        "--dim",
        8,
    ]
    options += ["--judged", 10, "--tree-regulariser", 1, "--rounds", 0]
    call("adversarial", tiny_corpus, *options, "--seeds", 1)
    trials = {path: path.stat().st_mtime_ns for path in (folder / "trials").iterdir()}
    result = call("adversarial", tiny_corpus, *options, "--seeds", 2, "--clock", "wall")
    assert all(path.stat().st_mtime_ns == before for path, before in trials.items())
    assert len(list((folder / "trials").iterdir())) == 2 * (1 + 2 * 2)
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert (folder / "results.md").read_text().strip() in result.output
    configuration = json.loads((folder / "configuration.json").read_text())
    assert (configuration["plan"]["num_steps"], configuration["plan"]["dim"]) == (2, 8)
    assert set(json.loads((folder / "results.json").read_text())["results"]) == {
        "first_label", "all_labels",
    }  # fmt: skip
    with pytest.raises(ConfigError, match=re.escape("another experiment (its plan differs)")):
        call("adversarial", tiny_corpus, *options, "--steps", 3)


def test_learning_curves_of_one_task(tiny_corpus, tmp_path):
    folder = tmp_path / "out"
    call("adversarial", tiny_corpus, "--task", "first_label", "--output", folder, "--steps", 2,
         "--settings", "uniform", "--dim", 8, "--judged", 10, "--rounds", 0,
         "--seeds", 1)  # fmt: skip
    assert set(json.loads((folder / "results.json").read_text())["results"]) == {"first_label"}


def test_learning_curves_are_drawn_of_made_up_problems(tmp_path):
    folder = tmp_path / "out"
    sizes = ("--synthetic", 8, "--synthetic", 12)
    call("adversarial", *sizes, "--output", folder, "--settings", "uniform", "--steps", 2,
         "--judged", 10, "--rounds", 0, "--seeds", 1)  # fmt: skip
    found = json.loads((folder / "results.json").read_text())["results"]
    assert {task: set(settings) for task, settings in found.items()} == {
        "synthetic-8": {"true", "uniform--3-3"}, "synthetic-12": {"true", "uniform--3-3"},
    }  # fmt: skip


def test_learning_curves_want_a_corpus_or_a_made_up_problem(tiny_corpus, tmp_path):
    output = ("--output", tmp_path / "out")
    with pytest.raises(ConfigError, match="nothing to learn; give a corpus, or --synthetic"):
        call("adversarial", *output)
    with pytest.raises(ConfigError, match="give each an --output of its own"):
        call("adversarial", tiny_corpus, "--synthetic", 8, *output)
    with pytest.raises(ConfigError, match="--task first_label is of a corpus"):
        call("adversarial", "--synthetic", 8, "--task", "first_label", *output)
    assert not (tmp_path / "out").exists()


def test_a_failure_is_one_sentence(tmp_path):
    command = [sys.executable, "-m", "research", "blend", str(tmp_path / "none")]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith("Error: ") and len(run.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_the_options_that_all_have(name):
    help_text = call(name, "--help").output
    options = ("--output", "--seeds", "--settings", "--json")
    assert [option for option in options if option not in help_text] == []


def test_an_experiment_that_there_is_not_is_refused():
    result = call("no-such")
    assert result.exit_code == 2
    assert "No such command 'no-such'" in result.output


def test_the_record_of_an_experiment_has_its_seeds(tiny_corpus, tmp_path):
    call("negative-mining", tiny_corpus, "--settings", "top_1,plain", "--sampled", 32,
         "--epochs", 1, "--output", tmp_path / "out", "--seeds", 2,
         "--json", tmp_path / "x.json")  # fmt: skip
    record = json.loads((tmp_path / "x.json").read_text())
    assert record["seeds"] == [0, 1]
    assert record["figures"] == json.loads((tmp_path / "out" / "results.json").read_text())
