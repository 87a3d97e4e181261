"""`longtail train` and `longtail evaluate`: what they print, write and refuse."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import longtail
from longtail.models.bundle.registry import Registry
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.training.assessment.compare import read_predictions
from longtail.training.data.dataset import open_dataset


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Calls the command in an empty folder and returns what it did."""
    monkeypatch.chdir(tmp_path)
    for name in ("TRANSFORMERS_VERBOSITY", "HF_HUB_DISABLE_PROGRESS_BARS", "TRANSFORMERS_NO_TQDM"):
        monkeypatch.setenv(name, os.environ.get(name, ""))

    def call_command(*arguments: str | Path) -> Result:
        return CliRunner().invoke(
            longtail.app, list(map(str, arguments)), catch_exceptions=False, prog_name="longtail"
        )

    return call_command


@pytest.fixture
def evaluate(call, trained, tiny_corpus):
    """Evaluates the trained model; the files go to the folder `out`."""
    places = (tiny_corpus, "--registry", trained.registry.folder, "--output", "out")
    return lambda *options: call("evaluate", *places, *options)


@pytest.fixture
def broken_corpus(tiny_corpus, tmp_path):
    """The tiny corpus with two training lines and one test line that can't be used."""
    folder = Path(shutil.copytree(tiny_corpus, tmp_path / "broken"))
    with (folder / "train.jsonl").open("a") as file:
        file.write('{"text": "no such", "labels": ["no such label"]}\n{"text": "half", "la\n')
    with (folder / "test.jsonl").open("a") as file:
        file.write('{"text": " ", "labels": []}\n')
    return folder


REASONS = (
    "train.jsonl, line 61: unknown label 'no such label'",
    "train.jsonl, line 62: not JSON",
    "test.jsonl, line 21: ",
)


def test_train_publishes_a_version_and_says_its_digest(call, tiny_corpus, tiny_config_file):
    result = call("train", tiny_corpus, "--config", tiny_config_file)
    manifest = Registry("registry").open(1).manifest
    said, *lines = result.stdout.splitlines()
    assert said.startswith("Fine-tunes an encoder: ")
    assert lines[0].startswith("Version 1 of 'registry' is trained, in ")
    assert lines[1] == f"310 labels, default scorer {manifest.default_scorer}."
    assert lines[2] == f"Why this scorer: {manifest.default_scorer_reason}."
    assert lines[3] == f"Digest {manifest.digest}"
    assert Path("runs/train/run.json").is_file()


def test_broken_lines_end_the_command_with_one_error_that_lists_them_all(
    broken_corpus, tiny_config_file, tmp_path
):
    command = [sys.executable, "-m", "longtail", "train", broken_corpus, "--config"]
    places = ["--registry", tmp_path / "registry", "--work", tmp_path / "work"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, tiny_config_file, *places], env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: {broken_corpus}: 3 lines can't be used")
    assert all(reason in done.stderr for reason in REASONS)
    assert "Traceback" not in done.stderr


def test_evaluate_begins_with_a_table_and_prints_all_tables_when_asked(evaluate, trained):
    begun = evaluate().stdout
    table, measured, written = begun.split("\n\n")
    default = trained.bundle.manifest.default_scorer
    assert table.splitlines()[2].startswith(f"| {default} ")
    assert table.count("\n") <= 9 and measured.startswith("20 documents")
    assert written.startswith("Written: out/evaluation.json")
    tables = Path("out/evaluation.md").read_text()
    assert tables.startswith(measured)
    result = evaluate("--all", "--overwrite")
    assert result.stdout.startswith(tables.rstrip())
    for scorer in ("retrieval", "linear", "linear, uncorrected", "30-NN tf-idf", "label names"):
        assert f"\n| {scorer} " in tables
    pictures = ["out/by_frequency.png", "out/reliability.png"]
    assert result.stdout.splitlines()[-2:] == [f"Written: {path}" for path in pictures]
    assert all(Path(path).stat().st_size > 20_000 for path in pictures)


@pytest.mark.slow
def test_evaluate_writes_the_ranking_of_every_scorer_when_asked(evaluate, trained, tiny_corpus):
    result = evaluate("--predictions", "-k", "20")
    names = [
        "hybrid", "linear", "linear-uncorrected", "dense_neighbours", "sparse", "names",
        "neighbours", "word_vectors", "word_neighbours", "fast", "ensemble",
    ]  # fmt: skip
    names += ["30-NN-tf-idf", "label-names"]
    written = [f"Written: out/predictions/{name}.npz" for name in names]
    assert result.stdout.splitlines()[-len(names) - 1 : -1] == written
    documents = json.loads(Path("out/predictions/documents.json").read_text())
    assert (documents["split"], documents["left_out"], documents["is_known"]) == ("test", [], True)
    split = open_dataset(tiny_corpus).split("test")
    assert documents["ids"] == [each.id for each in split]
    assert documents["labels"] == [each.id for each in open_dataset(tiny_corpus).labels]
    predictor = Predictor.of_bundle(trained.bundle, device="cpu")
    texts = list(open_dataset(tiny_corpus).split("test").texts())
    expected = predictor.rank(predictor.read(texts), RankingOptions(20, "sparse"))
    read = read_predictions(Path("out/predictions/sparse.npz"), 20, 310)
    assert np.array_equal(read.labels, expected.labels)
    assert np.array_equal(read.scores, expected.scores)


def test_predictions_hold_the_ids_of_documents_and_labels(evaluate, tiny_corpus):
    evaluate("--predictions", "--no-baselines")
    named = json.loads(Path("out/predictions/documents.json").read_text())
    labels = read_predictions(Path("out/predictions/ensemble.npz"), 20, 310).labels
    documents = [json.loads(x) for x in (tiny_corpus / "test.jsonl").read_text().splitlines()]
    assert named["ids"] == [x.get("id", str(row)) for row, x in enumerate(documents, 1)]
    written = [json.loads(x)["id"] for x in (tiny_corpus / "labels.jsonl").read_text().splitlines()]
    assert named["labels"] == written
    assert 0 <= labels[0, 0] < len(written)


@pytest.mark.parametrize("option", ["--label-delimiter", "--language", "--text-columns"])
@pytest.mark.parametrize("command", ["evaluate x", "report x", "promote", "threshold x"])
def test_an_option_of_the_training_names_the_option_that_stands_for_it(option, command, call):
    result = call(*command.split(), option, "x")
    said = " ".join(result.output.replace("│", " ").split())
    assert result.exit_code == 2
    assert f"No such option: {option}" in said and f"--read {option[2:]}=VALUE" in said
    others = [
        call(*words, "--label-delimitr", "x").output for words in (["evaluate", "x"], ["list"])
    ]
    assert all("--read " not in each for each in others)


@pytest.fixture
def describe(tmp_path, monkeypatch, trained):
    """Calls the command in an empty folder, on the trained model's registry."""
    monkeypatch.chdir(tmp_path)
    registry = str(trained.registry.folder)

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(
            longtail.app, ["describe", "--registry", registry, *arguments], catch_exceptions=False
        )

    return call


@pytest.fixture
def bundle(trained):
    return trained.bundle


@pytest.fixture
def commonest(bundle):
    return bundle.catalogue[int(bundle.catalogue.training_counts.argmax())]


def test_keywords_are_shown_with_their_weights_and_marked_when_the_encoder_reads_them(
    describe, commonest
):
    lines = describe(commonest.id, "--keywords", "7").stdout.splitlines()
    found = json.loads(describe(commonest.id, "--keywords", "7", "--json").stdout)
    assert lines[5] == "keywords, by weight (* stands in what the encoder reads):"
    assert lines[6:] == [
        f"  {'*' if token in found['keywords_read'] else ' '} {weight:8.3f}  {token}"
        for token, weight in found["keywords"]
    ]
    is_title = ["title: " in line for line in lines[6:]]
    assert len(lines[6:]) == 7 and " * " in lines[6] and any(is_title)
    assert not any(" * " in line for line, x in zip(lines[6:], is_title, strict=True) if x)


def test_the_export_is_a_label_file_that_a_corpus_can_have(describe, bundle, tiny_corpus, tmp_path):
    corpus = Path(shutil.copytree(tiny_corpus, tmp_path / "corpus"))
    describe("--all", "--output", str(corpus / "labels.jsonl"), "--overwrite")
    assert [label.id for label in open_dataset(corpus).catalogue] == [
        label.id for label in bundle.catalogue
    ]
