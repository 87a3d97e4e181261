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

TINY = "--steps 2 --dim 8 --judged 10 --tree-regulariser 1 --rounds 0"
FILES = ["configuration.json", "results.json", "results.md", "results.png", "trials"]


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)


@pytest.mark.parametrize(
    ("words", "num_trials", "other"),
    [
        (
            "sampling-bias --settings within_batch-tail,uniform-constant --epochs 1",
            (6, 12),
            "split",
        ),
        ("negative-mining --settings top_1,plain --sampled 32 --epochs 1", (8, 16), "split"),
        (f"adversarial --settings tree,uniform,adversarial {TINY}", (6, 10), "plan"),
    ],
)
def test_an_experiment_writes_its_files_and_goes_on(
    words, num_trials, other, tiny_corpus, tmp_path
):
    folder, (name, *options) = tmp_path / "out", words.split()
    given = (name, tiny_corpus, "--output", folder, *options)
    call(*given, "--seeds", "1")
    trials = {path: path.stat().st_mtime_ns for path in (folder / "trials").iterdir()}
    result = call(*given, "--seeds", "2", *(["--clock", "wall"] if other == "plan" else []))
    assert all(path.stat().st_mtime_ns == before for path, before in trials.items())
    assert (len(trials), len(list((folder / "trials").iterdir()))) == num_trials
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert (folder / "results.md").read_text().strip() in result.output
    configuration = json.loads((folder / "configuration.json").read_text())
    assert configuration["experiment"] == name
    assert json.loads((folder / "results.json").read_text())["configuration"] == configuration
    changed = ("--split", "test") if other == "split" else ("--steps", "3")
    with pytest.raises(ConfigError, match=re.escape(f"another experiment (its {other} differs)")):
        call(*given, *changed)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(extras, "_is_found", lambda name: name != "matplotlib")
    with pytest.raises(SystemExit, match=r'needs matplotlib.* pip install "longtail\[plots\]"'):
        main()
