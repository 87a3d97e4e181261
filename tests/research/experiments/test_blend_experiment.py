"""The experiment on the blend: its settings, its figures, its report, and that it resumes."""

import pytest

from longtail.training.data.dataset import open_dataset
from research.experiments.blend import SETTINGS, blend_experiment
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
