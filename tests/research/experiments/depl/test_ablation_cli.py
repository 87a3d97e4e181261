"""`python -m research depl`: what it writes, that it goes on, what is shared, what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from longtail.training.assessment.compare import read_predictions
from longtail.training.pipeline.train import Run
from longtail.training.runtime.checkpoints import is_done
from research.commands import app
from research.experiments.depl import runs

pytestmark = pytest.mark.slow

FILES = [
    "configuration.json", "measured", "results.json", "results.md", "results.png", "shared",
    "trials", "work",
]  # fmt: skip
SCORERS = ["classifier", "ensemble", "fast", "hybrid", "names", "retrieval", "sparse"]


class StoppedError(Exception):
    """Ends the process of an experiment, as it were."""


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["depl", *map(str, arguments)], catch_exceptions=False)


def fields_of(path: Path, name: str) -> list[Any]:
    return [json.loads(line)[name] for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def config_file(tiny_content, tmp_path_factory):
    """The tiny configuration without the linear scorer, an epoch a stage."""
    content = {name: value for name, value in tiny_content.items() if name != "linear"}
    path = tmp_path_factory.mktemp("config") / "base.yaml"
    path.write_text(yaml.safe_dump(content | {"scorers": SCORERS}))
    return path


@pytest.fixture(scope="module")
def starts():
    """Folder and finished stages of each run at its start."""
    return []


@pytest.fixture(scope="module")
def folder(tiny_corpus, config_file, tmp_path_factory, starts):
    """An experiment that was stopped in its third setting, and then went on with one more."""
    folder = tmp_path_factory.mktemp("experiment") / "out"
    options = (tiny_corpus, "--config", config_file, "--output", folder, "--epochs", 1)
    original: Callable[..., int] = runs.train

    def watched(run: Run, registry: object) -> int:
        found = {stage for stage in ("sparse", "classifier") if (run.folder / stage).is_dir()}
        assert "classifier" not in found or is_done(run.folder / "classifier")
        starts.append((run.folder.parent.name, found))
        if len(starts) == 3:
            raise StoppedError
        return original(run, registry)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "train", watched)
        with pytest.raises(StoppedError):
            call(*options, "--settings", "cls_labels,no_pretraining")
        call(*options, "--settings", "cls_labels,no_pretraining,no_classifier")
    return folder


def test_it_goes_on_where_it_was_stopped(folder, starts):
    names = [name for name, _ in starts]
    assert names == [
        "base.0", "cls_labels.0", "no_pretraining.0", "no_pretraining.0", "no_classifier.0",
    ]  # fmt: skip
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert not list((folder / "work").iterdir())


def test_what_settings_have_in_common_is_trained_once(folder, starts):
    both = {"sparse", "classifier"}
    assert [found for _, found in starts] == [
        set(), both, {"sparse"}, {"sparse"}, both,
    ]  # fmt: skip
    kept = sorted(path.name.split("-")[0] for path in (folder / "shared").iterdir())
    assert kept == ["classifier", "classifier", "sparse"]  # one of them of no epochs


def test_a_figure_is_what_evaluation_of_the_kept_ranking_gives(folder, tiny_corpus):
    ranked = folder / "measured" / "base.0" / "retrieval.npz"
    ids = fields_of(tiny_corpus / "labels.jsonl", "id")
    truth = fields_of(tiny_corpus / "dev.jsonl", "labels")
    best = read_predictions(ranked, len(truth), len(ids)).labels[:, 0]
    wanted = sum(ids[label] in true for label, true in zip(best, truth, strict=True)) / len(truth)
    trial = json.loads((folder / "trials" / "retrieval.base.0.json").read_text())
    assert trial["values"]["P@1"] == pytest.approx(wanted)
