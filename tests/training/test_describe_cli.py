"""`longtail describe`: one label, the whole catalogue, and what it refuses."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import longtail
from longtail.training.data.dataset import open_dataset


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
    is_title = ["title: " in line for line in lines[6:]]
    assert len(lines[6:]) == 7 and " * " in lines[6] and any(is_title)
    assert not any(" * " in line for line, x in zip(lines[6:], is_title, strict=True) if x)


# ---- the whole catalogue ----


def test_the_export_is_a_label_file_that_a_corpus_can_have(describe, bundle, tiny_corpus, tmp_path):
    corpus = Path(shutil.copytree(tiny_corpus, tmp_path / "corpus"))
    describe("--all", "--output", str(corpus / "labels.jsonl"), "--overwrite")
    assert [label.id for label in open_dataset(corpus).catalogue] == [
        label.id for label in bundle.catalogue
    ]
