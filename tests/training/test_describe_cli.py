"""`longtail describe`: one label, the whole catalogue, and what it refuses."""

import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner, Result

import longtail
from longtail.models.encoders.pretrained import load_tokenizer
from longtail.models.encoders.tokens import tokenize_texts
from longtail.training.data.dataset import open_dataset
from longtail.training.reports.labels import report_labels, write_reports

MAX_TOKENS = 12  # of the trained run


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


# ---- one label ----


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
def describe_without_encoder(trained_sparse, tmp_path, monkeypatch):
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


def test_an_interrupted_export_leaves_the_old_file_and_nothing_else(bundle, tmp_path, monkeypatch):
    path = tmp_path / "labels.jsonl"
    path.write_text("old\n")
    interrupt = Mock(side_effect=[(), (), KeyboardInterrupt])
    monkeypatch.setattr("longtail.training.reports.labels._weighed_keywords", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_reports(bundle, path, 3)
    assert path.read_text() == "old\n"
    assert [each.name for each in tmp_path.iterdir()] == ["labels.jsonl"]


def test_the_export_is_a_label_file_that_a_corpus_can_have(describe, bundle, tiny_corpus, tmp_path):
    corpus = Path(shutil.copytree(tiny_corpus, tmp_path / "corpus"))
    describe("--all", "--output", str(corpus / "labels.jsonl"), "--overwrite")
    assert [label.id for label in open_dataset(corpus).catalogue] == [
        label.id for label in bundle.catalogue
    ]
