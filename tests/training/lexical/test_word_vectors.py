"""Vectors of words and labels: gradients by differences, what is learned, and served scores."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.models.kinds.placement import on_device
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.memory.device_vectors import DeviceVectors
from longtail.models.memory.vectors import ByteVectors
from longtail.models.scorers.tfidf import TfidfModel
from longtail.models.scorers.word_vectors import CosineSource, names_of
from longtail.training.lexical import word_vectors
from longtail.training.lexical.word_vectors import WordVectorsSettings, fit_word_vectors
from tests.closeness import assert_all_close

WORDS = ("river", "fish", "steel", "law", "milk", "court", "boat", "mine")
ABOUT = {"river": ("river", "boat", "fish"), "steel": ("steel", "mine"), "milk": ("milk",)}


@pytest.fixture
def tfidf():
    return TfidfModel(WORDS, np.ones(len(WORDS), dtype=np.float32))


@pytest.fixture
def catalogue():
    named = [Label("r", "river"), Label("s", "steel"), Label("x", "unknown"), Label("b", "boat")]
    return LabelCatalogue(named)


@pytest.fixture
def corpus(tfidf):
    """Texts about three labels; the fourth is carried by none."""
    rng = np.random.default_rng(0)
    about = [rng.choice(words, 3) for words in ABOUT.values() for _ in range(40)]
    truth = csr_array(np.repeat(np.eye(3, 4, dtype=np.float32), 40, axis=0))
    return csr_array(tfidf.transform(map(" ".join, about))), truth


def trained(corpus, catalogue, tfidf, seed=0, epochs=20):
    settings = WordVectorsSettings(dim=16, epochs=epochs)
    return fit_word_vectors(*corpus, catalogue, tfidf, settings, seed)


def scores_of(model, texts):
    labels = np.arange(model.labels.num_rows)
    source = CosineSource(model.encode(model.tfidf.transform(texts)), model.labels, labels)
    rows = np.arange(len(texts))
    return source.score(rows, np.tile(labels, (len(texts), 1)))


def loss_of(words, own, features, names, truth):
    """Return the loss of all documents against all carried labels, written as in the module."""
    unit = lambda rows: rows / np.linalg.norm(rows, axis=1, keepdims=True)  # noqa: E731
    texts, labels = unit(features @ words), unit(unit(names @ words) + own)
    scores = 16 * texts @ labels.T
    others = (np.exp(scores) * (1 - truth)).sum(axis=1, keepdims=True)
    losses = np.log1p(others / np.exp(scores))
    return ((truth / truth.sum(axis=1, keepdims=True)) * losses).sum(axis=1).mean()


def test_a_step_goes_down_the_slope_that_differences_of_the_loss_have(monkeypatch):
    rng = np.random.default_rng(1)
    features, names = rng.random((5, 6)), rng.random((3, 6))
    truth = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1]])
    as_float32 = [csr_array(x.astype(np.float32)) for x in (features, truth, names)]
    found = {}

    def keep(rows, at, gradients):
        found[id(rows)] = (at, gradients)

    monkeypatch.setattr(word_vectors._Rows, "update", keep)
    training = word_vectors._Training(*as_float32, 4, rng)
    words, own = training._words.values.astype(float), training._own.values.astype(float)
    loss = training.step(np.arange(5))
    assert loss == pytest.approx(loss_of(words, own, features, names, truth), rel=1e-5)
    for table, rows in ((words, training._words), (own, training._own)):
        at, gradients = found[id(rows)]
        assert at.tolist() == list(range(len(table)))
        for place in np.ndindex(table.shape):
            before = table[place]
            table[place] = before + 1e-6
            above = loss_of(words, own, features, names, truth)
            table[place] = before - 1e-6
            below = loss_of(words, own, features, names, truth)
            table[place] = before
            assert gradients[place] == pytest.approx((above - below) / 2e-6, abs=1e-4)


def test_texts_are_near_the_labels_of_texts_like_them(corpus, catalogue, tfidf):
    scores = scores_of(trained(corpus, catalogue, tfidf), ["fish fish", "mine", "milk"])
    assert scores[:, :3].argmax(axis=1).tolist() == [0, 1, 2]


def test_a_label_without_documents_is_where_its_name_is(corpus, catalogue, tfidf):
    model = trained(corpus, catalogue, tfidf)
    np.testing.assert_array_equal(model.labels.bytes[3], model.names.bytes[3])
    assert scores_of(model, ["boat"])[0, 3] > 0.999


def test_equal_seeds_give_equal_vectors_and_others_do_not(corpus, catalogue, tfidf):
    first, again, other = (trained(corpus, catalogue, tfidf, seed, 2) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.labels.bytes, again.labels.bytes)
    assert (first.labels.bytes != other.labels.bytes).any()


def test_more_labels_than_are_drawn_are_sampled(corpus, catalogue, tfidf, monkeypatch):
    monkeypatch.setattr(word_vectors, "_NUM_DRAWN", 2)
    scores = scores_of(trained(corpus, catalogue, tfidf), ["fish", "mine", "milk"])
    assert scores[:, :3].argmax(axis=1).tolist() == [0, 1, 2]


def test_a_text_has_the_same_scores_in_every_batch_and_zeros_without_a_known_word(
    corpus, catalogue, tfidf
):
    model = trained(corpus, catalogue, tfidf)
    texts = ["river law court", "nothing known", "steel mine boat milk"]
    together = scores_of(model, texts)
    np.testing.assert_array_equal(together, np.concatenate([scores_of(model, [x]) for x in texts]))
    assert not together[1].any()


def test_new_labels_get_the_vector_of_their_names(corpus, catalogue, tfidf):
    new = Label("f", "fish", alternative_names=("river",))
    model = trained(corpus, catalogue, tfidf).with_labels([new])
    assert model.labels.num_rows == 5
    expected = model.encode(tfidf.transform([names_of(new)]))
    np.testing.assert_array_equal(model.labels.bytes[4], expected.bytes[0])


def test_without_its_documents_a_label_is_where_its_name_is(corpus, catalogue, tfidf):
    model = trained(corpus, catalogue, tfidf)
    blind = model.without_documents(np.array([True, False, False, False]))
    np.testing.assert_array_equal(blind.labels.bytes[0], model.names.bytes[0])
    np.testing.assert_array_equal(blind.labels.bytes[1:], model.labels.bytes[1:])


@pytest.mark.parametrize("raised", [None, np.array([0.0, 2.0, -1.0, 0.5])])
def test_the_best_labels_are_those_of_all_scores(corpus, catalogue, tfidf, raised):
    model = trained(corpus, catalogue, tfidf)
    labels = np.array([1, 4, 6, 9])
    queries = model.encode(tfidf.transform(["river steel", "milk"]))
    source = CosineSource(queries, model.labels, labels, raised)
    rows, every = np.array([1, 0]), np.tile(np.arange(10), (2, 1))
    scores = source.score(rows, every)
    assert np.isneginf(scores).sum() == 12
    values = [x.bytes * x.scales[:, None].astype(float) for x in (queries, model.labels)]
    exact = (values[0] @ values[1].T)[rows] + (0 if raised is None else raised)
    assert_all_close(scores[:, labels], exact.astype(np.float32), rtol=1e-6)
    for m in (1, 3, 4, 6):
        best = source.top(rows, m)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :m]
        is_there = np.arange(m) < 4
        np.testing.assert_array_equal(best.labels, np.where(is_there, order, -1))
        np.testing.assert_array_equal(best.scores, np.take_along_axis(scores, order, axis=1))


def test_vectors_of_a_part_of_the_documents_are_trained_further(corpus, catalogue, tfidf):
    first = trained(corpus, catalogue, tfidf)
    more = TfidfModel((*WORDS[::-1], "ship"), np.ones(len(WORDS) + 1, dtype=np.float32))
    features = csr_array(more.transform(["river boat", "steel mine", "milk"]))
    truth = csr_array(np.eye(3, 4, dtype=np.float32))
    settings = WordVectorsSettings(dim=16, epochs=1)
    again = fit_word_vectors(features, truth, catalogue, more, settings, 0, start=first)
    texts = ["fish", "mine", "milk court"]
    moved = scores_of(again, texts)[:, :3] - scores_of(first, texts)[:, :3]
    assert np.abs(moved).max() < 0.1  # random vectors would differ by about 1


def test_a_device_finds_the_same_labels():
    rng = np.random.default_rng(4)
    labels = ByteVectors.rounded(rng.standard_normal((300, 16), dtype=np.float32))
    queries = ByteVectors.rounded(rng.standard_normal((9, 16), dtype=np.float32))
    covered, rows = np.arange(0, 600, 2), np.arange(9)
    alone = CosineSource(queries, labels, covered).top(rows, 20)
    found = CosineSource(queries, labels, covered, on_device=DeviceVectors(labels, "cpu"))
    np.testing.assert_array_equal(found.top(rows, 20).labels, alone.labels)
    np.testing.assert_array_equal(found.top(rows, 20).scores, alone.scores)


@pytest.mark.gpu
def test_a_gpu_holds_the_vectors_of_the_labels():
    vectors = ByteVectors.rounded(np.eye(8, dtype=np.float32))
    assert on_device(vectors, "cpu") is None
    found = on_device(vectors, "cuda")
    assert found is not None and found.nearest(vectors, 1).documents.ravel().tolist() == [*range(8)]
