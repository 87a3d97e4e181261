"""The record of the documents that a model was trained on."""

import json
from dataclasses import replace

import numpy as np
import pytest

from longtail.models.bundle.bundle import open_bundle, write_bundle
from longtail.models.bundle.manifest import FileInfo
from longtail.models.bundle.trained_on import (
    PROBES_NAME,
    TrainedOn,
    digest_of,
    digests_of,
    probes_to_jsonl,
    read_probes,
    read_trained_on,
)
from longtail.models.errors import BundleCorruptError
from longtail.models.kinds.storage import read_parts, write_parts

NAMES = ["train_texts", "dev_texts"]
NONE = np.array([], dtype=np.uint64)


def record_with(**digests: np.ndarray) -> TrainedOn:
    return TrainedOn(("a", "b"), {"label_column": "c"}, "id", dict.fromkeys(NAMES, NONE) | digests)


def test_white_space_makes_no_other_text():
    assert digest_of(" a\n b ") == digest_of("a b") != digest_of("ab")


def test_a_document_is_known_by_its_text():
    record = record_with(train_texts=np.sort(digests_of(["one", "two"])))
    assert record.knows("train", digests_of(["two", "edited"])).tolist() == [True, False]


def written(tmp_path, bundle, record: TrainedOn):
    manifest = write_bundle(
        tmp_path / "bundle", manifest=bundle.manifest, catalogue=bundle.catalogue,
        tensors=record.tensors(), texts=record.texts(), encoder_folder=None,
    )  # fmt: skip
    return replace(bundle, folder=tmp_path / "bundle", manifest=manifest)


def test_what_is_written_is_read(tmp_path, sparse_bundle):
    record = record_with(train_texts=np.sort(digests_of(["one", "two"])))
    found = read_trained_on(written(tmp_path, sparse_bundle, record))
    assert replace(found, digests={}) == replace(record, digests={})
    for name in NAMES:
        assert np.array_equal(found.digests[name], record.digests[name])


@pytest.fixture
def bundle_with(sparse_bundle, tmp_path):
    def make(content):
        (tmp_path / PROBES_NAME).write_text(content)
        manifest = replace(sparse_bundle.manifest, files={PROBES_NAME: FileInfo("0" * 64, 0)})
        return replace(sparse_bundle, folder=tmp_path, manifest=manifest)

    return make


def test_texts_come_back_whatever_they_hold(bundle_with):
    texts = (
        "two\nlines", "a \u2028 line \x85 separator", 'quotes " and \\', "\U0001f600 žluťoučký",
    )  # fmt: skip
    assert read_probes(bundle_with(probes_to_jsonl(texts))) == texts


@pytest.mark.parametrize("content", ["{", "[]", '{"words": "a"}', '{"text": 5}'])
def test_a_file_that_cannot_be_read_is_damage(bundle_with, content):
    with pytest.raises(BundleCorruptError, match=r"file 'probes\.jsonl' can't be read"):
        read_probes(bundle_with(content))


def test_a_bundle_holds_its_texts_and_its_digest_covers_them(sparse_bundle, tmp_path):
    parts, manifest = read_parts(sparse_bundle), sparse_bundle.manifest
    for name, probes in (("without", []), ("with", ["a", "b"]), ("other", ["a", "c"])):
        write_parts(tmp_path / name, parts, manifest, tmp_path / "scratch", probes)
    without, with_texts, other = (
        open_bundle(tmp_path / name) for name in ("without", "with", "other")
    )
    assert (read_probes(without), read_probes(with_texts)) == ((), ("a", "b"))
    assert len({each.manifest.digest for each in (without, with_texts, other)}) == 3
    (with_texts.folder / PROBES_NAME).write_text(json.dumps({"text": "x"}))
    with pytest.raises(BundleCorruptError, match=r"probes\.jsonl"):
        open_bundle(with_texts.folder)
