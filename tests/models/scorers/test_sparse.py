"""The sparse model against scikit-learn's tf-idf and against dense products."""

import json

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.models.errors import BundleCorruptError
from longtail.models.labels.selection import Selection
from longtail.models.ranking.top_k import NO_LABEL, Source, top_of_scores
from longtail.models.scorers.sparse import SparseModel, SparseSource
from longtail.models.scorers.tfidf import TfidfModel


def test_words_of_one_form_are_one_token():
    model = TfidfModel(["fisch", "fluss"], np.ones(2, dtype=np.float32), ["de"])
    found = model.transform(["Flüsse Fluss Fische"]).toarray()[0]
    assert found[1] / found[0] == pytest.approx(1 + np.log(2))


def test_the_vocabulary_comes_back_from_json():
    idf = np.array([1, 2], dtype=np.float32)
    model = TfidfModel(["čeština", "bratr"], idf, ["cs"], max_ngram=2)
    found = TfidfModel.from_json(model.to_json(), idf)
    assert (found.tokens, found.forms.languages, found.max_ngram) == (model.tokens, ("cs",), 2)
    np.testing.assert_array_equal(
        found.transform(["bratři Češtiny"]).toarray(), model.transform(["bratr Čeština"]).toarray()
    )


@pytest.mark.parametrize(
    "change",
    [
        {"max_ngram": 10**18}, {"max_ngram": 0}, {"tokens": [1]}, {"tokens": ["\ud800"]},
        {"languages": ["elvish"]},
    ],
)  # fmt: skip
def test_a_vocabulary_out_of_its_bounds_is_refused(change):
    content = {"tokens": ["a"], "languages": [], "max_ngram": 1, "analyzer": "word"} | change
    with pytest.raises(BundleCorruptError, match="sparse vocabulary: cannot be read"):
        TfidfModel.from_json(json.dumps(content), np.ones(1, dtype=np.float32))


def random_problem(seed: int) -> tuple[SparseModel, csr_array]:
    """Small integers, so that scores tie; labels 0, 3, 6 ... have a row."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(-1, 2, size=(8, 5)).astype(np.float32)
    features = rng.integers(0, 2, size=(9, 5)).astype(np.float32)
    tfidf = TfidfModel(["a1", "b1", "c1", "d1", "e1"], np.ones(5, dtype=np.float32))
    bias = rng.integers(-1, 2, size=8).astype(np.float32)
    model = SparseModel.of_rows(
        tfidf, csr_array(weights), bias, np.arange(0, 24, 3, dtype=np.int64)
    )
    return model, csr_array(features)


def dense_scores(model: SparseModel, features: csr_array) -> np.ndarray:
    """The oracle: scores of all 25 labels, -inf for those without a row."""
    scores = np.full((features.shape[0], 25), -np.inf, dtype=np.float32)
    scores[:, model.labels] = features.toarray() @ model.weights.toarray().T + model.bias
    return scores


@pytest.fixture(params=[0, 2**20], ids=["sums are made anew", "sums are kept"])
def most_kept(request, monkeypatch):
    monkeypatch.setattr("longtail.models.scorers.sparse.MAX_KEPT", request.param)


@pytest.mark.usefixtures("most_kept")
@pytest.mark.parametrize("k", [1, 4, 8, 10, 30])
@pytest.mark.parametrize("rows_a_part", [1, 4, 64])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_top_is_a_full_sort_in_parts_of_any_size_on_any_threads(
    k, rows_a_part, num_threads, monkeypatch
):
    monkeypatch.setattr("longtail.models.ranking.top_k._ROWS_A_PART", rows_a_part)
    model, features = random_problem(k)
    rows = np.array([8, 0, 1, 2, 5, 5])
    found = SparseSource(model, features, num_threads=num_threads).top(rows, k)
    wanted = top_of_scores(dense_scores(model, features)[rows], k)
    np.testing.assert_array_equal(found.labels, wanted.labels)
    np.testing.assert_array_equal(found.scores, wanted.scores)


@pytest.mark.usefixtures("most_kept")
@pytest.mark.parametrize("k", [1, 3, 30])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.7, 1.0])
def test_top_among_selected_labels_is_a_full_sort_of_them(k, share):
    rng = np.random.default_rng(k)
    model, features = random_problem(k)
    selection, rows = Selection(rng.random(25) < share), np.array([8, 0, 1, 5, 5])
    source = SparseSource(model, features)
    whole = source.top(rows, k)
    among = source.among(selection)
    assert among.num_labels == max(1, selection.is_selected[model.labels].sum())
    scores = np.where(selection.is_selected, dense_scores(model, features), np.float32(-np.inf))
    found, wanted = among.top(rows, k), top_of_scores(scores[rows], k)
    np.testing.assert_array_equal(found.labels, wanted.labels)
    np.testing.assert_array_equal(found.scores, wanted.scores)
    of_all = np.tile(np.arange(25), (len(rows), 1))
    np.testing.assert_array_equal(among.score(rows, of_all), scores[rows])
    np.testing.assert_array_equal(source.top(rows, k).labels, whole.labels)  # as before


@pytest.mark.usefixtures("most_kept")
@pytest.mark.parametrize("labels", [[4, 6, 20], [24], []])
@pytest.mark.parametrize("dropped", [None, [6, 9, 24]])
def test_rows_of_labels_are_replaced_added_and_left_out(labels, dropped, monkeypatch):
    monkeypatch.setattr("longtail.models.matrices._CHUNK", 4)
    model, _ = random_problem(3)
    rows = np.arange(1, 1 + 5 * len(labels), dtype=np.float32).reshape(-1, 5)
    both = np.column_stack([model.weights.toarray(), model.bias])
    wanted = dict(zip(model.labels.tolist(), both.tolist(), strict=True))
    for label in labels if dropped is None else dropped:
        wanted.pop(label, None)
    wanted |= dict(zip(labels, np.column_stack([rows, rows[:, 0]]).tolist(), strict=True))
    ids, gone = np.array(labels, dtype=np.int64), None if dropped is None else np.array(dropped)
    found = model.with_columns(ids, csr_array(rows.T), rows[:, 0], gone)
    assert found.labels.tolist() == sorted(wanted)
    both = np.column_stack([found.weights.toarray(), found.bias])
    assert both.tolist() == [wanted[label] for label in sorted(wanted)]
    assert found.weights_by_feature.has_sorted_indices


def test_scores_of_given_labels_are_those_of_a_dense_product():
    model, features = random_problem(0)
    rows = np.array([3, 1])
    labels = np.array([[NO_LABEL, 0, 1, 21, 24, 10**9], [3, 4, 5, 6, 22, 23]])
    found = SparseSource(model, features).score(rows, labels)
    known = np.isin(labels, model.labels)
    dense = np.take_along_axis(dense_scores(model, features)[rows], np.where(known, labels, 0), 1)
    np.testing.assert_array_equal(found, np.where(known, dense, -np.inf))


@pytest.mark.usefixtures("most_kept")
def test_score_gives_the_bits_that_top_gives_in_any_batch():
    rng = np.random.default_rng(0)
    tfidf = TfidfModel([f"t{i}" for i in range(50)], np.ones(50, dtype=np.float32))
    weights, features = (rng.normal(size=(30, 50)).astype(np.float32) for _ in range(2))
    bias = rng.normal(size=30).astype(np.float32)
    model = SparseModel.of_rows(tfidf, csr_array(weights), bias, np.arange(30, dtype=np.int64))
    source = SparseSource(model, csr_array(features))
    best = source.top(np.arange(30), 30)
    np.testing.assert_array_equal(source.score(np.arange(30), best.labels), best.scores)
    alone = SparseSource(model, csr_array(features[7:8])).top(np.arange(1), 30)
    np.testing.assert_array_equal(alone.scores[0], best.scores[7])
    first = SparseSource(model, csr_array(features))
    np.testing.assert_array_equal(first.score(np.arange(30), best.labels), best.scores)
    some = np.array([29, 3, 4])  # of which one is asked about for the first time
    part = SparseSource(model, csr_array(features))
    part.top(np.array([3, 4]), 2)
    np.testing.assert_array_equal(part.top(some, 30).scores, best.scores[some])


@pytest.mark.usefixtures("most_kept")
def test_a_sparse_source_is_a_source_also_of_no_rows():
    model, features = random_problem(0)
    source = SparseSource(model, features)
    assert isinstance(source, Source)
    assert (source.num_queries, source.num_labels) == (9, 8)
    assert source.top(np.empty(0, dtype=np.int64), 3).labels.shape == (0, 3)
