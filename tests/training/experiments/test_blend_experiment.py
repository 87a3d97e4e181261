"""The experiment on the blend: its settings, its figures, its report, and that it resumes."""

from __future__ import annotations

import json

import pytest

from training.data.dataset import open_dataset
from training.experiments import blend
from training.experiments.blend import COSINE, ONE_SET, SETTINGS, WHOLE, blend_experiment
from training.experiments.trials import TrialStore


@pytest.fixture(scope="module")
def found(tiny_corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("blend")
    experiment = blend_experiment(open_dataset(tiny_corpus), "test", 1, None, folder)
    return experiment.run(TrialStore(folder, {"of": "this test"}), "cpu"), folder


def test_every_setting_has_all_figures_as_fractions(found):
    settings = found[0]["blend"]
    assert list(settings) == list(SETTINGS)
    for figures in settings.values():
        assert {"P@1", "PSP@5", "macro-F1@5 (1-9)", "R@10 (0)", "R@10 (100+)"} <= set(figures)
        assert all(0 <= each.mean <= 1 for name, each in figures.items() if name != "PSP@5")


def test_what_is_left_out_is_left_out():
    assert "names" not in SETTINGS["without names"].members
    assert SETTINGS[ONE_SET].counts == (0,) and SETTINGS[ONE_SET].members == SETTINGS[WHOLE].members
    assert SETTINGS[COSINE].by_cosine and not SETTINGS[WHOLE].by_cosine


def test_the_report_has_a_table_findings_and_a_picture(found):
    report = blend._report(found[0])
    for setting in SETTINGS:
        assert f"| {setting} " in report.markdown
    assert "weights by rarity help" in report.markdown
    (axes,) = report.figure.axes
    assert len(axes.get_legend().get_texts()) == len(SETTINGS)


def test_trials_that_are_there_are_not_run_again(found, tiny_corpus, monkeypatch):
    _, folder = found
    monkeypatch.setattr(blend, "fit_encoder_free", lambda *_, **__: pytest.fail("fitted again"))
    experiment = blend_experiment(open_dataset(tiny_corpus), "test", 1, None, folder)
    again = experiment.run(TrialStore(folder, {"of": "this test"}), "cpu")
    kept = json.loads((folder / "trials" / "blend.all.0.json").read_text())["values"]
    assert {name: each.mean for name, each in again["blend"][WHOLE].items()} == kept
