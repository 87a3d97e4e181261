"""Labels that a bundle gets without training."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from longtail.models.bundle.bundle import Bundle, open_bundle
from longtail.models.bundle.registry import Registry
from longtail.models.edit.add_labels import add_labels, check_is_latest, equal_names
from longtail.models.encoders.dual_encoder import DualEncoder, encode_all
from longtail.models.encoders.tokens import tokenize_texts
from longtail.models.errors import BundleError, DataError
from longtail.models.kinds.storage import write_parts
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.options import RankingOptions
from longtail.models.parts.dense_parts import DenseParts
from longtail.models.predict.predictor import Predictor

NEW = (Label("N1", "grain"), Label("N2", "port", "milk and tax "), Label("N3", "the court"))
NEW_FILES = ("labels.jsonl", "retrieval.safetensors")


@pytest.fixture
def add(tmp_path):
    """Add labels to a bundle in a folder; returns the new bundle, opened."""

    def add_to(bundle: Bundle, labels: Sequence[Label] = NEW, name: str = "added") -> Bundle:
        add_labels(bundle, labels)(tmp_path / name)
        return open_bundle(tmp_path / name)

    return add_to


def vectors_of(
    encoder: DualEncoder, dense: DenseParts, texts: Sequence[str], role: str
) -> np.ndarray:
    tokens = tokenize_texts(dense.tokenizer, texts, 32)
    return encode_all(encoder, tokens, role, pad_id=dense.tokenizer.pad_token_id)


def same_scores(old: Predictor, new: Predictor, texts: Sequence[str], scorer: str) -> bool:
    num_old, num_new = len(old.catalogue), len(new.catalogue)
    labels = np.tile(np.arange(num_old), (len(texts), 1))
    pairs = [(each, each.read(texts)) for each in (old, new)]
    before, after = (
        each.score(batch, labels, RankingOptions(scorer=scorer)) for each, batch in pairs
    )
    ranked = new.rank(pairs[1][1], RankingOptions(num_new, scorer)).labels
    kept = np.array([[y for y in row if y < num_old][:num_old] for row in ranked.tolist()])
    before_labels = old.rank(pairs[0][1], RankingOptions(num_old, scorer)).labels
    is_same_order = np.array_equal(kept, before_labels)
    return np.array_equal(before, after) and is_same_order


def test_of_a_trained_bundle_every_scorer_keeps_its_scores(trained, add, tiny_texts):
    texts = [document["text"] for document in tiny_texts["dev"][:3]]
    old, new = (Predictor.of_bundle(each) for each in (trained.bundle, add(trained.bundle)))
    assert {"hybrid", "ensemble"} <= set(new.scorers.names)
    for scorer in set(old.scorers.names) - {"names", "fast", "ensemble"}:
        assert same_scores(old, new, texts, scorer)
    assert new.parts.calibrations == old.parts.calibrations


def test_a_text_about_a_new_label_gets_it_first(parts, manifest, dense, add, tmp_path):
    words = [label.name.split()[0] for label in parts.catalogue]
    taught = taught_encoder(dense, [*words, "grain"])
    vectors = vectors_of(taught, dense, words, "label")
    catalogue = LabelCatalogue(Label(f"L{i}", word) for i, word in enumerate(words))
    changed = replace(
        parts,
        catalogue=catalogue,
        dense=replace(dense, encoder=taught, label_vectors=vectors),
        models={},
    )
    said = replace(manifest, scorers=("retrieval", "sparse"), linear_correction=None)
    write_parts(tmp_path / "before", changed, said, tmp_path / "scratch")
    before = open_bundle(tmp_path / "before")
    added = add(before, [Label("N", "grain")])
    for bundle, wanted in ((before, "L"), (added, "N")):
        (prediction,) = Predictor.of_bundle(bundle).predict(["the grain and grain"], k=1)
        assert prediction.labels[0].id.startswith(wanted)
    (other,) = Predictor.of_bundle(added).predict(["the fish and fish"], k=1)
    assert other.labels[0].name == "fish"


def taught_encoder(dense: DenseParts, words: Sequence[str]) -> DualEncoder:
    """Return an encoder whose label vectors point where documents about them lie."""
    taught = copy.deepcopy(dense.encoder)
    plain = copy.deepcopy(dense.encoder)
    with torch.no_grad():
        for pooler in (plain.document_pooler, plain.label_pooler):
            pooler.weight.copy_(torch.eye(plain.dim))
            pooler.bias.zero_()
        documents = vectors_of(plain, dense, [f"the {x} and {x}" for x in words], "document")
        means = vectors_of(plain, dense, words, "label")
        centre = documents.mean(axis=0)
        wanted = (documents - centre) / np.linalg.norm(documents - centre, axis=1, keepdims=True)
        solved = np.linalg.lstsq(np.c_[means, np.ones(len(words))], wanted, rcond=None)[0]
        taught.label_pooler.weight.copy_(torch.from_numpy(solved[:-1].T))
        taught.label_pooler.bias.copy_(torch.from_numpy(solved[-1]))
        taught.document_pooler.weight.copy_(torch.eye(taught.dim))
        taught.document_pooler.bias.copy_(torch.from_numpy(-centre))
    return taught


def test_all_else_of_the_bundle_stays_byte_for_byte(bundle, add):
    before, after = bundle.manifest, add(bundle).manifest
    assert {name for name in after.files if after.files[name] != before.files.get(name)} == {
        *NEW_FILES
    }
    assert set(before.files) == set(after.files)
    assert (after.label_count, after.metrics, after.scorers) == (10, before.metrics, before.scorers)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([Label("L3", "x")], r"new label 'L3' \('x'\): .* with this id, 'trade policy'; give"),
        ([NEW[0], NEW[0]], r"id 'N1' occurs twice"),
        ([Label("N", " ")], r"new label 'N' \(' '\): its name is blank"),
        ([Label("\t", "x")], r"its id is blank"),
        ([Label("N", "x\ud800")], r"it is no Unicode text"),
        ([], r"new labels: got none"),
    ],
)
def test_what_cannot_be_added_is_refused(bundle, labels, words):
    with pytest.raises(DataError, match=words):
        add_labels(bundle, labels)


def test_a_name_that_another_label_has_is_told_with_the_ids(bundle):
    new = [Label("A", "Trade  POLICY"), Label("B", "grain"), Label("C", "grain")]
    there, earlier = equal_names(bundle.catalogue, new)
    assert there.startswith("new label 'A' ('Trade  POLICY'): a label with this name is there")
    assert there.endswith("already, with the id 'L3'; both will be answered")
    assert earlier.startswith("new label 'C' ('grain'): ")
    assert "with the id 'B'" in earlier


@pytest.fixture
def registry(parts, manifest, tmp_path):
    """A registry whose current version, 1, is a trained model, and 2 the same with label N1."""
    registry = Registry(tmp_path / "registry")
    registry.publish(lambda folder: write_parts(folder, parts, manifest, tmp_path / "scratch"))
    registry.publish(add_labels(registry.open(1), NEW[:1]), activate=False)
    return registry


def test_a_second_addition_that_would_leave_out_the_first_is_refused(registry):
    with pytest.raises(
        BundleError,
        match=r"version 2 is version 1 with 1 more label \('N1'\); choose --version 2 to add to "
        "those, or --version 1 to leave them out",
    ):
        check_is_latest(registry, 1, NEW[1:2])
