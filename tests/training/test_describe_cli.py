"""`longtail describe`: one label, the whole catalogue, and what it refuses."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner, Result

import longtail
from longtail.models.bundle.bundle import Bundle
from longtail.models.encoders.pretrained import load_tokenizer
from longtail.models.encoders.tokens import tokenize_texts
from longtail.models.errors import DataError
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.training.data.dataset import open_dataset
from longtail.training.reports.labels import index_of_label, report_labels, write_reports

MAX_TOKENS = 12  # of the trained run


@pytest.fixture
def describe(tmp_path, monkeypatch, trained) -> Callable[..., Result]:
    """Calls the command in an empty folder, on the trained model's registry."""
    monkeypatch.chdir(tmp_path)
    registry = str(trained.registry.folder)

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(
            longtail.app, ["describe", "--registry", registry, *arguments], catch_exceptions=False
        )

    return call


@pytest.fixture
def fail(monkeypatch, capsys, tmp_path, trained) -> Callable[..., str]:
    """Calls the command as the shell does and returns the error that it prints."""
    monkeypatch.chdir(tmp_path)

    def failing(*arguments: str) -> str:
        registry = str(trained.registry.folder)
        monkeypatch.setattr(
            sys, "argv", ["longtail", "describe", *arguments, "--registry", registry]
        )
        with pytest.raises(SystemExit) as caught:
            longtail.main()
        assert caught.value.code == 1
        return capsys.readouterr().err

    return failing


@pytest.fixture
def bundle(trained) -> Bundle:
    return trained.bundle


@pytest.fixture
def commonest(bundle) -> Label:
    return bundle.catalogue[int(bundle.catalogue.training_counts.argmax())]


@pytest.fixture
def unseen(bundle) -> Label:
    """A label without training documents."""
    return next(label for label in bundle.catalogue if not label.training_count)


# ---- one label ----


def test_a_label_is_shown_by_its_id_and_by_its_name_alike(describe, commonest):
    by_id, by_name = describe(commonest.id), describe(commonest.name)
    assert by_id.stdout == by_name.stdout
    assert by_id.stdout.startswith(f"name:               {commonest.name}\n")
    assert f"\ntraining documents: {commonest.training_count}\n" in by_id.stdout


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
    assert len(lines[6:]) == 7 and " * " in lines[6] and " * " not in lines[-1]


def test_a_label_without_training_documents_says_so(describe, unseen):
    shown = describe(unseen.id).stdout
    assert "training documents: none, so it has no keywords\n" in shown
    assert f"encoder reads:      {unseen.name}\n" in shown
    assert "by weight" not in shown


def test_the_encoder_is_not_loaded(describe, commonest, monkeypatch):
    for name in (
        "longtail.models.parts.dense_storage.load_transformer",
        "longtail.models.encoders.pretrained.load_transformer",
    ):
        monkeypatch.delattr(name)
    assert describe(commonest.id).exit_code == 0


# ---- what the encoder reads ----


def test_the_pseudo_description_is_cut_where_the_encoder_stops(bundle):
    tokenizer = load_tokenizer(bundle.encoder_folder)
    reports = list(report_labels(bundle, range(len(bundle.catalogue)), 20))
    whole = [label.pseudo_description for label in bundle.catalogue]
    cut = [report.pseudo_description for report in reports]
    assert all(text.startswith(part) for text, part in zip(whole, cut, strict=True))
    assert sum(map(len, cut)) < sum(map(len, whole))
    read, seen = (tokenize_texts(tokenizer, texts, MAX_TOKENS) for texts in (whole, cut))
    assert read.ids.tolist() == seen.ids.tolist()
    assert (seen.num_tokens <= MAX_TOKENS).all()


# ---- without an encoder ----


@pytest.fixture
def describe_without_encoder(trained_sparse, tmp_path, monkeypatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    registry = str(trained_sparse.registry.folder)
    return lambda *arguments: CliRunner().invoke(
        longtail.app, ["describe", "--registry", registry, *arguments], catch_exceptions=False
    )


def test_without_an_encoder_json_has_the_whole_description(describe_without_encoder, commonest):
    found = json.loads(describe_without_encoder(commonest.id, "--json").stdout)
    assert found["pseudo_description"] == commonest.pseudo_description
    assert found["keywords_read"] is None
    assert len(found["keywords"]) == 20


# ---- the whole catalogue ----


def test_all_labels_are_written_a_line_each_in_order(describe, bundle):
    result = describe("--all", "--output", "new/labels.jsonl", "--keywords", "3")
    records = [json.loads(line) for line in Path("new/labels.jsonl").read_text().splitlines()]
    assert result.stdout == "Written: new/labels.jsonl, a line for each label.\n"
    assert "labels: 100%" in result.stderr
    assert [record["id"] for record in records] == [label.id for label in bundle.catalogue]
    assert max(len(record["keywords"]) for record in records) == 3


def test_an_interrupted_export_leaves_the_old_file_and_nothing_else(bundle, tmp_path, monkeypatch):
    path = tmp_path / "labels.jsonl"
    path.write_text("old\n")
    interrupt = Mock(side_effect=[(), (), KeyboardInterrupt])
    monkeypatch.setattr("longtail.training.reports.labels._weighed_keywords", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_reports(bundle, path, 3)
    assert path.read_text() == "old\n"
    assert [each.name for each in tmp_path.iterdir()] == ["labels.jsonl"]


def test_a_file_that_can_not_be_written_is_told_in_one_line(fail, tmp_path):
    (tmp_path / "folder").mkdir()
    error = fail("--all", "--output", "folder")
    assert "Error: --output 'folder': is a folder, expected a file" in error
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_the_export_is_a_label_file_that_a_corpus_can_have(describe, bundle, tiny_corpus, tmp_path):
    corpus = Path(shutil.copytree(tiny_corpus, tmp_path / "corpus"))
    describe("--all", "--output", str(corpus / "labels.jsonl"), "--overwrite")
    assert [label.id for label in open_dataset(corpus).catalogue] == [
        label.id for label in bundle.catalogue
    ]


# ---- what is refused ----


@pytest.mark.parametrize(
    ("arguments", "got"),
    [
        ((), "got neither a label nor --all"),
        (("--output", "x.jsonl"), "got neither a label nor --all"),
        (("fish", "--all", "--output", "x.jsonl"), "got both 'fish' and --all"),
        (("--all",), "got --all without --output"),
        (("fish", "--output", "x.jsonl"), "got 'fish' with --output"),
    ],
)
def test_it_wants_either_a_label_or_all_with_a_file(fail, arguments, got):
    wanted = "expected either a LABEL, or --all with --output FILE"
    assert fail(*arguments) == f"Error: describe: {got}; {wanted}\n"


def test_an_unknown_label_is_told_in_one_line_with_the_closest_names(fail, commonest):
    wrong = f"{commonest.name.upper()}x"
    error = fail(wrong)
    assert error.startswith(f"Error: unknown label {wrong!r}; ")
    assert f"; the closest names are {commonest.name!r}" in error
    assert error.count("\n") == 1


CATALOGUE = LabelCatalogue(
    [Label("a1", "Fishery"), Label("a2", "fisheries"), Label("a3", "law"), Label("a4", "law")]
)


def test_a_name_that_several_labels_have_is_told_with_their_ids():
    with pytest.raises(DataError, match=r"named 'law' \(ids 'a3', 'a4'\); use the id$"):
        index_of_label(CATALOGUE, "law")
