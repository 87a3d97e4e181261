"""Batches of texts: parts of them and several together rank as they do alone."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from longtail.models.encoders.pretrained import dtype_for
from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.predict.predictor import Predictor

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
