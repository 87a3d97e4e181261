"""What is said of a corpus decides the run: another word, another run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import longtail
from longtail.training.reports.report import read_run_log

COLUMNS = ("--text-columns", "title,abstract", "--label-column", "topics", "--label-delimiter", "|")


@pytest.fixture(scope="module")
def posts(tmp_path_factory: pytest.TempPathFactory, tiny_texts) -> Path:
    """The documents of the slice, several times over with other words, in one CSV file."""
    path = tmp_path_factory.mktemp("posts") / "posts.csv"
    rows = [
        f'post {number},"{text["text"][:80].replace(chr(34), " ")}",'
        + "|".join(f"topic {label % 7}" for label in text["labels"])
        for number, text in enumerate(tiny_texts["train"] * 4)
    ]
    path.write_text("\n".join(["title,abstract,topics", *rows, ""]))
    return path


def run(*words: object) -> Any:
    return CliRunner().invoke(longtail.app, list(map(str, words)))


@pytest.mark.slow
def test_one_file_is_trained_evaluated_and_resumed_with_the_same_columns(posts, tmp_path, caplog):
    registry, work = tmp_path / "registry", tmp_path / "work"
    command = ("train", posts, "--only-sparse", "--registry", registry, "--work", work)
    done = run(*command, *COLUMNS)
    assert done.exit_code == 0, done.output
    assert json.loads((work / "run.json").read_text())["corpus"] == {
        "text_columns": ["title", "abstract"],
        "label_column": "topics",
        "label_delimiter": "|",
    }
    for _ in range(2):  # another run works beside it, and is resumed there
        other = run(*command, "--text-columns", "title", *COLUMNS[2:])
        assert "Version 2 of" in other.output, other.output
        assert len(list(work.glob("run-*/run.json"))) == 1
    assert "holds another run (its corpus, data_fingerprint differs)" in caplog.text
    assert "Version 1 of" in run(*command, *COLUMNS).output
    for version in (1, 2):
        bundle = longtail.Registry(registry).open(version)
        assert read_run_log(work, bundle.manifest).costs

    figures = tmp_path / "figures.json"
    measured = run(  # in the columns of the training
        "evaluate", posts, "--registry", registry, "--output", tmp_path / "out",
        "--no-baselines", "--json", figures,
    )  # fmt: skip
    assert measured.exit_code == 0, measured.output
    other = posts.with_name("other.csv")
    other.write_text(posts.read_text().replace("abstract,topics", "abstract,tags", 1))
    again = run(
        "evaluate", other, "--read", "label-column=tags", "--registry", registry,
        "--output", tmp_path / "again", "--no-baselines",
    )  # fmt: skip
    assert again.exit_code == 0, again.output
    tables = [(tmp_path / each / "evaluation.md").read_text() for each in ("out", "again")]
    assert tables[0] == tables[1]
    divided = longtail.CorpusOptions(("title", "abstract"), "topics", "|")
    found = longtail.evaluate(posts, registry=registry, corpus=divided)
    from longtail.training.data.dataset import open_dataset

    num_test = open_dataset(posts, divided).split("test").scan().labels.shape[0]
    assert found.rankings["sparse"].labels.shape[0] == num_test > 10
