"""Runs on a corpus without a dev split: chosen on held-out documents, then trained on all."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longtail.models.encoders.dual_encoder import encode_all
from longtail.models.encoders.tokens import tokenize_texts
from longtail.models.kinds.storage import read_parts
from longtail.models.predict.predictor import Predictor
from longtail.training.assessment.assess import assess
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import open_dataset
from longtail.training.data.documents import TrainingDocuments
from longtail.training.pipeline.encoder_free import fit_encoder_free
from longtail.training.sparse.fit import _save_block
from longtail.training.sparse.svm import FittedLabels

SHARE = 0.4  # 24 of the 60 documents, some more than the least that are held out


@pytest.fixture(scope="module")
def corpus(tiny_corpus, tmp_path_factory):
    folder = Path(shutil.copytree(tiny_corpus, tmp_path_factory.mktemp("no-dev") / "corpus"))
    (folder / "dev.jsonl").unlink()
    return folder


def with_share(config: TrainingConfig, share: float = SHARE, **changes: Any) -> TrainingConfig:
    content = config.model_dump(include=config.model_fields_set)
    return TrainingConfig.model_validate(content | {"held_out_dev": share} | changes)


@pytest.fixture(scope="module")
def sparse(train_in, sparse_config, corpus, tmp_path_factory):
    """The sparse model alone."""
    return train_in(tmp_path_factory.mktemp("sparse"), with_share(sparse_config), corpus)


@pytest.fixture(scope="module")
def undivided(train_in, sparse_config, corpus, tmp_path_factory):
    """The same, with no documents held out."""
    return train_in(tmp_path_factory.mktemp("undivided"), with_share(sparse_config, 0.0), corpus)


@pytest.fixture(scope="module")
def dense(train_in, tiny_config, corpus, tmp_path_factory):
    """All scorers."""
    return train_in(tmp_path_factory.mktemp("dense"), with_share(tiny_config), corpus)


def test_the_published_sparse_model_is_that_of_all_documents_to_the_bit(sparse, undivided):
    for name in ("sparse.safetensors", "sparse.json", "labels.jsonl"):
        assert sparse.bundle.manifest.files[name] == undivided.bundle.manifest.files[name]


def test_the_manifest_says_how_many_documents_stood_for_the_dev_split(
    sparse, undivided, trained_sparse
):
    manifest = sparse.bundle.manifest
    assert (manifest.held_out_documents, manifest.training["held_out_dev"]) == (24, SHARE)
    assert manifest.chosen_on == "24 held-out training documents"
    assert set(manifest.calibrations) == set(manifest.metrics["dev"]) == {"sparse"}
    others = [each.bundle.manifest for each in (undivided, trained_sparse)]
    assert [each.held_out_documents for each in others] == [None, None]
    assert [each.chosen_on for each in others] == ["nothing", "the dev split"]
    assert others[0].calibrations == {}


def test_the_metrics_are_those_of_the_first_fit_on_the_held_out_documents(
    sparse, sparse_config, corpus
):
    documents = TrainingDocuments.read(open_dataset(corpus), SHARE)
    first = fit_encoder_free(documents, sparse_config, sparse.work)
    parts = replace(read_parts(sparse.bundle), catalogue=first.catalogue, sparse=first.sparse)
    view = documents.corpus.with_splits({"dev": documents.dev})
    found = assess(Predictor(parts), view, "dev", num_training_documents=36).evaluation
    told = sparse.bundle.manifest.metrics["dev"]["sparse"]
    assert told == {name: dict(x.values) for name, x in found.scorers["sparse"].items()}


@pytest.mark.slow
@pytest.mark.parametrize("num_saved", [0, 1])
def test_a_run_that_ended_in_the_second_fit_goes_on_to_the_same_digest(
    sparse, train_in, sparse_config, corpus, tmp_path, monkeypatch, num_saved
):
    monkeypatch.setattr("longtail.training.sparse.fit._BLOCK_SIZE", 50)
    saved: list[Path] = []

    def save(path: Path, fitted: FittedLabels) -> None:
        if path.parent.name == "sparse-all" and len(saved) == num_saved:
            raise KeyboardInterrupt
        saved.extend([path] if path.parent.name == "sparse-all" else [])
        _save_block(path, fitted)

    monkeypatch.setattr("longtail.training.sparse.fit._save_block", save)
    with pytest.raises(KeyboardInterrupt):
        train_in(tmp_path, with_share(sparse_config), corpus)
    again: list[Path] = []
    monkeypatch.setattr(
        "longtail.training.sparse.fit._save_block",
        lambda path, fitted: again.append(path) or _save_block(path, fitted),
    )
    resumed = train_in(tmp_path, with_share(sparse_config), corpus)
    assert resumed.bundle.manifest.digest == sparse.bundle.manifest.digest
    assert {path.parent.name for path in again} == {"sparse-all"}
    assert len(saved) == num_saved and not set(saved) & set(again)


def test_dense_parts_know_the_labels_of_the_kept_documents_and_sparse_those_of_all(dense, corpus):
    dataset = open_dataset(corpus)
    kept = TrainingDocuments.read(dataset, SHARE).train.scan().labels
    rows = {
        "classifier.safetensors": kept.indices,
        "linear.safetensors": kept.indices,
        "sparse.safetensors": dataset.split("train").scan().labels.indices,
    }
    for name, labels in rows.items():
        assert dense.bundle.tensors(name)["labels"].tolist() == sorted(set(labels.tolist()))


def test_label_vectors_encode_the_pseudo_descriptions_of_the_bundle(dense, sparse, tiny_config):
    parts = read_parts(dense.bundle)
    texts = [label.pseudo_description for label in parts.catalogue]
    max_tokens = tiny_config.descriptions.max_tokens
    tokens = tokenize_texts(parts.dense.tokenizer, texts, max_tokens)
    pad_id = int(parts.dense.tokenizer.pad_token_id)
    wanted = encode_all(parts.dense.encoder, tokens, "label", pad_id=pad_id, device="cpu")
    assert parts.dense.label_vectors == pytest.approx(wanted, abs=1e-5)
    assert texts != [label.pseudo_description for label in sparse.bundle.catalogue]
