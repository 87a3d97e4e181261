"""Runs of several seeds, as `longtail evaluate --predictions` leaves them."""

from __future__ import annotations

from pathlib import Path

import evaluated_runs as runs
import pytest


def make_run(folder: Path, **texts: str) -> Path:
    (folder / "predictions").mkdir(parents=True)
    for name, text in texts.items():
        (folder / "predictions" / f"{name}.npz").write_text(text)
    return folder


def test_scorers_of_all_runs_are_found(tmp_path):
    first = make_run(tmp_path / "a", sparse="1", names="2", linear="3")
    second = make_run(tmp_path / "b", sparse="4", names="2")
    found = runs.prediction_files([first, second])
    assert list(found) == ["names", "sparse"]
    assert found["sparse"] == [x / "predictions" / "sparse.npz" for x in (first, second)]


def test_one_run_given_twice_is_refused(tmp_path):
    first = make_run(tmp_path / "a", sparse="1", names="2")
    second = make_run(tmp_path / "b", sparse="1", names="3")
    copy = make_run(tmp_path / "c", sparse="1", names="2", linear="4")
    runs.prediction_files([first, second])
    for folders in ([first, first], [first, second, copy]):
        with pytest.raises(runs.DataError, match="the same predictions; give runs of different"):
            runs.prediction_files(folders)


def test_folders_without_predictions_are_refused(tmp_path):
    first, second = make_run(tmp_path / "a", sparse="1"), make_run(tmp_path / "b", names="1")
    for folders, words in (
        ([first, make_run(tmp_path / "c")], "c: has no predictions"),
        ([first, tmp_path / "nowhere"], "nowhere: has no predictions"),
        ([first, second], "no scorer has predictions in all of"),
    ):
        with pytest.raises(runs.DataError, match=words):
            runs.prediction_files(folders)


def test_every_run_has_a_seed_of_its_own(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    assert runs.seeds_of(folders, None) == [0, 1]
    assert runs.seeds_of(folders, [7, 3]) == [7, 3]
    for seeds in ([1], [2, 2], [0, 1, 2], []):
        with pytest.raises(runs.DataError, match="give one of its own for each run"):
            runs.seeds_of(folders, seeds)
