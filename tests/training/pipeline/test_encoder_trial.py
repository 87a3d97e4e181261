"""Whether an encoder that nobody named is taken: a trial on a sample decides."""

import json
import logging
import shutil
from pathlib import Path

import pytest

from longtail.models.encoders.pretrained import PACKAGED
from longtail.models.kinds.storage import read_parts
from longtail.training.configuration.run import TrainingConfig
from longtail.training.pipeline import encoder_start, encoder_trial, train
from longtail.training.pipeline.encoder_trial import Trial


@pytest.fixture
def config(tiny_content, sentence_encoder, monkeypatch):
    """The configuration of a run that names no encoder, where the packaged one is a tiny one."""
    find = encoder_start.find_encoder
    asked = str(sentence_encoder)
    monkeypatch.setattr(
        encoder_start, "find_encoder", lambda name: find(asked if name == PACKAGED else name)
    )
    monkeypatch.setattr(train, "is_packaged_installed", lambda: True)
    monkeypatch.setattr(train, "_LEAST_DEV", 20)
    kept = ("seed", "document_max_tokens", "precision", "descriptions")
    return TrainingConfig.model_validate({name: tiny_content[name] for name in kept})


def test_an_encoder_that_gains_no_more_than_chance_is_left_out(
    config, train_in, tiny_corpus, tmp_path, caplog
):
    caplog.set_level(logging.WARNING)
    found = train_in(tmp_path, config, tiny_corpus)
    assert found.bundle.manifest.encoder is None and read_parts(found.bundle).dense is None
    assert not {"retrieval", "fast"} & {*found.bundle.manifest.scorers}
    assert "'encoder: packaged' takes it" in caplog.text
    (kept,) = tmp_path.rglob("encoder-trial.json")
    trial = Trial(**json.loads(kept.read_text()))
    assert not trial.pays and trial.cost > 1


def test_an_encoder_that_gains_is_taken_and_read_through(
    config, train_in, tiny_corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr(encoder_trial, "_tried", lambda *_: Trial(0.05, 0.01, 12.0))
    found = train_in(tmp_path, config, tiny_corpus)
    assert found.bundle.manifest.encoder is not None
    assert read_parts(found.bundle).dense is not None


def test_an_encoder_that_is_named_is_taken_without_a_trial(
    config, sentence_encoder, train_in, tiny_corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr(encoder_trial, "_tried", lambda *_: pytest.fail("tried"))
    named = config.model_copy(update={"encoder": str(sentence_encoder)})
    assert train_in(tmp_path, named, tiny_corpus).bundle.manifest.encoder is not None


@pytest.mark.parametrize("has_dev", [True, False])
def test_it_is_not_tried_where_few_documents_could_decide(
    has_dev, config, train_in, tiny_corpus, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(train, "_LEAST_DEV", 21)
    monkeypatch.setattr(encoder_start, "find_encoder", lambda _: pytest.fail("loaded"))
    copied_corpus = Path(shutil.copytree(tiny_corpus, tmp_path / "corpus"))
    if not has_dev:
        (copied_corpus / "dev.jsonl").unlink()
        config = config.model_copy(update={"held_out_dev": 0.0})
    found = train_in(tmp_path / "run", config, copied_corpus)
    assert found.bundle.manifest.encoder is None
    assert f"there are {20 if has_dev else 0}; 'encoder: packaged' takes it" in caplog.text


@pytest.mark.parametrize(("gain", "error", "pays"), [(0.02, 0.01, True), (0.0195, 0.01, False)])
def test_it_pays_beyond_1_96_standard_errors(gain, error, pays):
    assert Trial(gain, error, 10.0).pays is pays
