"""The experiment on the blend: its settings, its figures, its report, and that it resumes."""

import json

import pytest

from longtail.training.data.dataset import open_dataset
from research.experiments import blend
from research.experiments.blend import SETTINGS, WHOLE, blend_experiment
from research.experiments.trials import TrialStore

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tiny_corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("blend")
    experiment = blend_experiment(open_dataset(tiny_corpus), "test", 1, None, folder)
    return experiment.run(TrialStore(folder, {"of": "this test"}), "cpu"), folder, experiment


def test_the_report_has_a_table_findings_and_a_picture(found):
    report = found[2].report(found[0])
    assert [row[0] for row in report.tables["settings"]["rows"]] == list(SETTINGS)
    assert "weights by rarity help" in {row[0] for row in report.tables["findings"]["rows"]}
    (axes,) = report.figure.axes
    assert len(axes.get_legend().get_texts()) == len(SETTINGS)


def test_trials_that_are_there_are_not_run_again(found, tiny_corpus, monkeypatch):
    _, folder, _ = found
    monkeypatch.setattr(blend, "fit_encoder_free", lambda *_, **__: pytest.fail("fitted again"))
    experiment = blend_experiment(open_dataset(tiny_corpus), "test", 1, None, folder)
    again = experiment.run(TrialStore(folder, {"of": "this test"}), "cpu")
    kept = json.loads((folder / "trials" / "blend.all.0.json").read_text())["values"]
    assert {name: each.mean for name, each in again["blend"][WHOLE].items()} == kept
