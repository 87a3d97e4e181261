"""The experiment on the blend: its settings, its figures, its report, and that it resumes."""

from __future__ import annotations

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


def test_intervals_are_of_the_figures_and_differences_of_both(found):
    tables = found[2].report(found[0]).tables
    metrics = [column["name"] for column in tables["intervals"]["columns"]][1:]
    values = {name: cells for name, *cells in tables["intervals"]["rows"]}
    assert list(values) == list(SETTINGS)
    for setting, cells in values.items():
        for metric, cell in zip(metrics, cells, strict=True):
            value, low, high = (float(part.strip("[],")) for part in cell.split())
            assert value == pytest.approx(100 * found[0]["blend"][setting][metric].mean, abs=0.006)
            assert low - 0.06 <= value <= high + 0.06
    apart = {name: cells for name, *cells in tables["differences"]["rows"]}
    assert set(apart) == set(SETTINGS) - {WHOLE}
    for setting, cells in apart.items():
        for place, cell in enumerate(cells):
            own, whole = (float(values[each][place].split()[0]) for each in (setting, WHOLE))
            assert float(cell.strip("*").split()[0]) == pytest.approx(own - whole, abs=0.011)


def test_trials_that_are_there_are_not_run_again(found, tiny_corpus, monkeypatch):
    _, folder, _ = found
    monkeypatch.setattr(blend, "fit_encoder_free", lambda *_, **__: pytest.fail("fitted again"))
    experiment = blend_experiment(open_dataset(tiny_corpus), "test", 1, None, folder)
    again = experiment.run(TrialStore(folder, {"of": "this test"}), "cpu")
    kept = json.loads((folder / "trials" / "blend.all.0.json").read_text())["values"]
    assert {name: each.mean for name, each in again["blend"][WHOLE].items()} == kept
