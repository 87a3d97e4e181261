"""Parts that contradict each other are refused; and how the sparse weights lie on disk."""

from __future__ import annotations

import copy
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from longtail.models.bundle.bundle import open_bundle
from longtail.models.edit.rewriting import rewrite
from longtail.models.encoders.pretrained import dtype_for
from longtail.models.errors import BundleCorruptError, RequestError
from longtail.models.kinds.storage import mapped_bytes, read_parts, write_parts
from longtail.models.label_tree.tree import LabelTree
from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.parts.model_parts import ModelParts
from longtail.models.parts.sparse_storage import read_sparse
from longtail.models.parts.texts import checked_texts
from longtail.models.predict.predictor import Predictor
from longtail.models.results import Prediction
from longtail.models.scorers.calibration import IDENTITY
from longtail.models.scorers.sparse import SparseSource

Spoil = Callable[[ModelParts], ModelParts]


def rows(parts, scorer: str, **columns):
    """The parts with other rows of a scorer."""
    linear = parts.models[scorer]
    changed = replace(linear, model=replace(linear.model, **columns))
    return replace(parts, models={**parts.models, scorer: changed})


def tree(parts, **arrays):
    linear = parts.models["linear"]
    changed = replace(linear, tree=LabelTree.from_arrays(linear.tree.to_arrays() | arrays))
    return replace(parts, models={**parts.models, "linear": changed})


ONE_LABEL = {
    "weights": np.zeros((0, 2), dtype=np.float32),
    "biases": np.zeros(0, dtype=np.float32),
    "label_of_leaf": np.zeros(1, dtype=np.int64),
}


def with_another_pooler(parts):
    encoder = copy.deepcopy(parts.dense.encoder)
    encoder.register_parameter("third_pooler", torch.nn.Parameter(torch.zeros(2)))
    return replace(parts, dense=replace(parts.dense, encoder=encoder))


def with_label_vectors_but_one(parts):
    return replace(parts, dense=replace(parts.dense, label_vectors=parts.dense.label_vectors[1:]))


def labels_of(parts, scorer: str):
    return parts.models[scorer].model.labels


CONTRADICTIONS: dict[str, tuple[Spoil, str]] = {
    "a label vector too few": (
        with_label_vectors_but_one,
        r"retrieval.safetensors can't be used: label_vectors \(6, 16\), expected \(7, 16\)",
    ),
    "a tree of fewer labels": (
        lambda parts: tree(parts, **ONE_LABEL),
        r"linear.safetensors can't be used: a tree of .* \(1, 16\), expected 7 to 7, and 16",
    ),
    "a tree of other dimensions": (
        lambda parts: tree(parts, mean=np.zeros(3, np.float32), components=np.eye(2, 3, dtype="f")),
        r"linear.safetensors can't be used: a tree of .* \(7, 3\), expected 7 to 7, and 16",
    ),
    "an array that no encoder has": (
        with_another_pooler,
        "dual_encoder.safetensors can't be used: array .*third_pooler.*unknown",
    ),
}
for name in ("classifier", "linear"):
    file = f"{name}.safetensors can't be used"
    CONTRADICTIONS |= {
        f"{name} of other dimensions": (
            lambda parts, x=name: rows(parts, x, weight=parts.models[x].model.weight[:, 1:]),
            f"{file}: 16 dimensions expected",
        ),
        f"{name} of labels that there are not": (
            lambda parts, x=name: rows(parts, x, labels=labels_of(parts, x) + 1),
            f"{file}: labels that are not rising rows of the catalogue",
        ),
        f"{name} of labels in another order": (
            lambda parts, x=name: rows(parts, x, labels=labels_of(parts, x)[::-1].copy()),
            f"{file}: labels that are not rising rows of the catalogue",
        ),
    }


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_dense_parts_that_contradict_each_other_are_refused(parts, manifest, tmp_path, name):
    spoil, message = CONTRADICTIONS[name]
    write_parts(tmp_path / "spoilt", spoil(parts), manifest, tmp_path / "scratch")
    with pytest.raises(BundleCorruptError, match=f"bundle 'spoilt': {message}.*; train again"):
        read_parts(open_bundle(tmp_path / "spoilt"))


@pytest.mark.parametrize(
    ("correction", "said", "word"),
    [
        ("prior", "prior", "linear.safetensors can't be used: correction 'prior' with labels that"),
        ("tree", "tree", "linear.safetensors can't be used: correction 'tree' with 0 arrays"),
        ("none", "prior", "linear_correction 'prior'"),
    ],
)
def test_a_correction_that_does_not_fit_is_refused(
    parts, manifest, tmp_path, correction, said, word
):
    linear = parts.models["linear"]
    model = replace(linear.model, labels=np.arange(5))  # 2 has no training document
    scorer = replace(linear, model=model, correction=correction, tree=None)
    spoilt = replace(parts, models={**parts.models, "linear": scorer})
    said = replace(manifest, linear_correction=said)
    write_parts(tmp_path / "spoilt", spoilt, said, tmp_path / "scratch")
    with pytest.raises(BundleCorruptError, match=word):
        read_parts(open_bundle(tmp_path / "spoilt"))


def test_arrays_stay_in_their_file_and_a_change_of_it_reaches_no_other_memory(
    sparse_parts, sparse_manifest, tmp_path
):
    write_parts(tmp_path / "b", sparse_parts, sparse_manifest, tmp_path / "scratch")
    bundle = open_bundle(tmp_path / "b")
    copied, mapped = (bundle.tensors("sparse.safetensors", x) for x in ((), ("data", "indices")))
    assert {k for k, x in mapped.items() if not x.flags.writeable} == {"data", "indices"}
    for name, array in copied.items():
        np.testing.assert_array_equal(mapped[name], array)
    model = read_sparse(bundle)
    text = " ".join(model.tfidf.tokens)
    source = SparseSource(model, model.tfidf.transform([text, text]))
    path = bundle.folder / "sparse.safetensors"
    content = bytearray(path.read_bytes())
    at = content.index(copied["indices"].tobytes())
    content[at : at + 4 * len(copied["indices"])] = np.full_like(copied["indices"], -1).tobytes()
    with path.open("r+b") as file:  # in place, as no program of ours does
        file.write(content)
    found = source.top(np.array([0, 1]), 3)
    assert (model.weights_by_feature.indices == -1).all()
    assert found.scores.tolist() == [sorted(model.bias.tolist(), reverse=True)[:3]] * 2


def test_a_version_shares_the_files_that_are_the_same(sparse_parts, sparse_manifest, tmp_path):
    write_parts(tmp_path / "b", sparse_parts, sparse_manifest, tmp_path / "scratch")
    bundle = open_bundle(tmp_path / "b")
    rewrite(tmp_path / "c", bundle, bundle.manifest, bundle.catalogue, {}, {"own.json": "[]"})
    after = open_bundle(tmp_path / "c")
    assert after.manifest.files.keys() - bundle.manifest.files == {"own.json"}
    name = "sparse.safetensors"
    assert (after.folder / name).samefile(bundle.folder / name)
    assert not (after.folder / "labels.jsonl").samefile(bundle.folder / "labels.jsonl")


@pytest.mark.parametrize(
    ("policy", "mode", "owner", "is_mapped"),
    [
        ("auto", 0o444, 4321, True), ("auto", 0o644, None, True), ("auto", 0o664, None, False),
        ("auto", 0o646, None, False), ("auto", 0o644, 4321, False), ("auto", 0o444, None, True),
        ("always", 0o666, None, True), ("never", 0o444, None, False),
    ],
)  # fmt: skip
def test_arrays_are_copied_where_other_users_can_write_to_their_file(
    trained_sparse, tmp_path, monkeypatch, policy, mode, owner, is_mapped
):
    name, names = "sparse.safetensors", ("data", "indices")
    shutil.copytree(trained_sparse.bundle.folder, tmp_path / "bundle")
    (tmp_path / "bundle" / name).chmod(mode)
    bundle = replace(trained_sparse.bundle, folder=tmp_path / "bundle", map_arrays=policy)
    if owner is not None:
        monkeypatch.setattr(os, "geteuid", lambda: owner)
        found = (tmp_path / "bundle" / name).stat()
        other = SimpleNamespace(st_uid=owner + 1, st_mode=found.st_mode)
        monkeypatch.setattr(type(tmp_path), "stat", lambda *_, **__: other)
    arrays = bundle.tensors(name, names)
    assert (mapped_bytes(bundle.folder, bundle.manifest, policy) > 0) == is_mapped
    monkeypatch.undo()
    expected = trained_sparse.bundle.tensors(name)
    for each in names:
        np.testing.assert_array_equal(arrays[each], expected[each])
        assert arrays[each].flags.writeable != is_mapped


TEXTS = ["imports of fish", "olive oil", "Regulation of the Council on imports of fish from Spain"]


@pytest.fixture(scope="module")
def predictor(trained):
    return Predictor.of_bundle(trained.bundle, device="cpu")


@pytest.mark.parametrize("scorer", ["retrieval", "classifier", "sparse"])
@pytest.mark.parametrize("is_prepared", [True, False])
def test_joined_and_taken_apart_texts_get_the_labels_that_they_get_alone(
    predictor, scorer, is_prepared
):
    batches = [predictor.read([text]) for text in TEXTS]
    if is_prepared:
        for batch in batches:
            predictor.prepare(batch, scorer)
            predictor.encode(batch)
    joined = TextBatch.joined(batches)
    wanted = [predictor.predict([text], scorer=scorer)[0] for text in TEXTS]
    found = predictor.predict_batch(joined, RankingOptions(scorer=scorer))
    parts = predictor.predict_batch(joined.take([2, 0]), RankingOptions(scorer=scorer))
    for some, alone in ((found, wanted), (parts, [wanted[2], wanted[0]])):
        assert [ids(x) for x in some] == [ids(x) for x in alone]
        assert [(x.num_tokens, x.truncated) for x in some] == [
            (x.num_tokens, x.truncated) for x in alone
        ]


def ids(prediction):
    return [label.id for label in prediction.labels]


def test_what_is_known_of_a_batch_is_not_made_again(predictor, monkeypatch):
    batch = predictor.read(TEXTS)
    predictor.prepare(batch)
    predictor.encode(batch)
    monkeypatch.setattr("longtail.models.encoders.dual_encoder.encode_all", None)
    monkeypatch.setattr("longtail.models.encoders.tokens.tokenize_texts", None)
    part = TextBatch.joined([batch.take([1]), batch.take([0])])
    np.testing.assert_array_equal(part.vectors, batch.vectors[[1, 0]])


@pytest.mark.parametrize(("has_it", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_takes_bfloat16_where_the_processor_has_it(monkeypatch, has_it, dtype):
    monkeypatch.setattr(
        torch.cpu, "get_capabilities", lambda: {"avx512_bf16": has_it}, raising=False
    )
    assert dtype_for("auto", "cpu") == dtype
    assert dtype_for("float32", "cpu") == torch.float32
    assert dtype_for("bfloat16", "cpu") == torch.bfloat16


def test_in_bfloat16_the_vectors_are_nearly_the_same(trained, predictor):
    half = Predictor.of_bundle(trained.bundle, device="cpu", precision="bfloat16")
    vectors = [x.read(TEXTS).vectors for x in (half, predictor)]
    assert vectors[0].dtype == np.float32
    np.testing.assert_allclose(*vectors, rtol=0.1, atol=0.05)


def test_texts_are_computed_once_and_batches_do_not_wait_for_each_other(predictor):
    both, computed = threading.Barrier(2, timeout=60), []

    def compute():
        both.wait()  # only where the other batch is being computed, too
        computed.append(1)
        return np.ones(len(TEXTS))

    made = [predictor.read(TEXTS), predictor.read(TEXTS)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda batch: batch.once("mine", compute), made))
    assert [batch.once("mine", compute).sum() for batch in made] == [len(TEXTS)] * 2
    assert len(computed) == 2


MAX_TOKENS = 8
LONG = "fish " * 40 + "law"


@pytest.fixture(scope="module")
def tiny(parts):
    return Predictor(parts, device="cpu")


def counts(found: Prediction) -> tuple[int, int, int, bool]:
    return found.num_tokens, found.num_text_tokens, found.known_tokens, found.truncated


@pytest.mark.parametrize("scorer", ["retrieval", "classifier", "linear"])
def test_an_answer_by_the_encoder_says_how_many_tokens_it_has_read(tiny, scorer):
    (found,) = tiny.predict([LONG], scorer=scorer)
    assert counts(found) == (MAX_TOKENS, 43, MAX_TOKENS - 2, True)


def test_the_sparse_model_reads_all_words_and_knows_those_with_a_feature(tiny):
    (found,) = tiny.predict([LONG + " zzz zzz"], scorer="sparse")
    assert counts(found) == (43, 43, 2, False)  # "fish" and "law"


@pytest.mark.parametrize(
    ("weights", "wanted"),
    [
        ({"retrieval": 0.5, "sparse": 0.5}, (MAX_TOKENS, 43, 6, True)),
        ({"sparse": 1.0}, (41, 41, 2, False)),
    ],
)
def test_a_blend_is_counted_as_its_encoder_reads_if_it_has_one(
    parts, constant_blend, weights, wanted
):
    blends = {"ensemble": constant_blend(weights)}
    blended = replace(parts, calibrations=dict.fromkeys(weights, IDENTITY), blends=blends)
    (found,) = Predictor(blended, device="cpu").predict([LONG], scorer="ensemble")
    assert counts(found) == wanted


def test_a_blend_knows_what_one_of_its_parts_knows(parts, constant_blend):
    """The sparse model reads what the encoder cuts off, so it may know words that it doesn't."""
    weights = {"retrieval": 0.5, "sparse": 0.5}
    blends = {"ensemble": constant_blend(weights)}
    blended = replace(parts, calibrations=dict.fromkeys(weights, IDENTITY), blends=blends)
    predictor = Predictor(blended, device="cpu")
    behind = "zzz " * 20 + "river"
    assert counts(predictor.predict([behind], scorer="ensemble")[0]) == (MAX_TOKENS, 23, 1, True)
    assert predictor.predict(["zzz " * 20], scorer="ensemble")[0].known_tokens == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, r"text 1 is None \(NoneType\), expected a string"),
        (1.5, r"text 1 is 1.5 \(float\), expected a string"),
        (b"oil", r"text 1 is b'oil' \(bytes\), expected a string"),
        (" \n", r"text 1 is blank; give it some words"),
        ("\ud800", r"text 1 holds half of a surrogate pair"),
    ],
)
def test_what_is_no_text_is_named_by_its_place(text, told):
    with pytest.raises(RequestError, match=told):
        checked_texts(["olive", text])


def test_whatever_can_be_gone_through_will_do():
    assert checked_texts(word for word in ("a", "b")) == ["a", "b"]
    given = ["a"]
    assert checked_texts(given) is given
