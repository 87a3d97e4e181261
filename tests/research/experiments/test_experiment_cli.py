"""`python -m research`: what it writes, that it goes on, and what it refuses."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from longtail.models import extras
from longtail.models.errors import ConfigError
from research.__main__ import main
from research.commands import app

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


def test_learning_curves_are_drawn_of_a_corpus_and_go_on(tiny_corpus, tmp_path):
    folder = tmp_path / "out"
    options = [
        "--output", folder, "--settings", "tree,uniform,adversarial", "--steps", 2, "--dim", 8,
    ]  # fmt: skip
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


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(extras, "_is_found", lambda name: name != "matplotlib")
    with pytest.raises(SystemExit, match=r'needs matplotlib.* pip install "longtail\[plots\]"'):
        main()
