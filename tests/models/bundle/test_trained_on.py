"""The record of the documents that a model was trained on."""

from dataclasses import replace

import numpy as np

from longtail.models.bundle.bundle import write_bundle
from longtail.models.bundle.trained_on import (
    NO_DIGEST,
    TrainedOn,
    digest_of,
    digests_of,
    read_trained_on,
)

NAMES = [f"{split}_{what}" for split in ("train", "dev", "test") for what in ("texts", "ids")]
NONE = np.array([], dtype=np.uint64)


def record_with(**digests: np.ndarray) -> TrainedOn:
    return TrainedOn(("a", "b"), {"label_column": "c"}, "id", dict.fromkeys(NAMES, NONE) | digests)


def test_white_space_makes_no_other_text_and_ids_are_no_texts():
    assert digest_of(" a\n b ") == digest_of("a b") != digest_of("ab")
    assert digest_of("a") != digest_of("a", is_id=True)


def test_a_document_is_known_by_its_text_or_its_id():
    record = record_with(
        train_texts=np.sort(digests_of(["one", "two"])), train_ids=digests_of(["1"], is_id=True)
    )
    ids = np.array([NO_DIGEST, digest_of("1", is_id=True), NO_DIGEST], dtype=np.uint64)
    found = record.knows("train", digests_of(["two", "edited", "new"]), ids)
    assert found.tolist() == [True, True, False]
    grown = record.with_documents("train", ["new"])
    assert not any(len(grown.digests[name]) for name in NAMES if name.endswith("ids"))
    assert grown.knows("train", digests_of(["new"]), ids[:1]).all()
    assert TrainedOn().with_documents("train", ["new"]) == TrainedOn()


def written(tmp_path, bundle, record: TrainedOn):
    manifest = write_bundle(
        tmp_path / "bundle", manifest=bundle.manifest, catalogue=bundle.catalogue,
        tensors=record.tensors(), texts=record.texts(), encoder_folder=None,
    )  # fmt: skip
    return replace(bundle, folder=tmp_path / "bundle", manifest=manifest)


def test_what_is_written_is_read(tmp_path, sparse_bundle):
    record = record_with(train_texts=np.sort(digests_of(["one", "two"])))
    found = read_trained_on(written(tmp_path, sparse_bundle, record))
    assert found is not None
    assert replace(found, digests={}) == replace(record, digests={})
    for name in NAMES:
        assert np.array_equal(found.digests[name], record.digests[name])
