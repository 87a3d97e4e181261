"""Keywords and pseudo descriptions of labels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from models.labels import Label, LabelCatalogue
from models.sparse import SparseModel, TfidfModel
from training.config import SparseConfig
from training.corpus import open_dataset
from training.descriptions import keywords_of_labels, pseudo_descriptions
from training.sparse import fit_sparse_model, fit_tfidf

TOKENS = ["apple", "bread", "cheese", "dates"]


def model_of(weights: list[list[float]], labels: list[int]) -> SparseModel:
    return SparseModel(
        TfidfModel(TOKENS, np.ones(4, dtype=np.float32)),
        csr_array(np.array(weights, dtype=np.float32)),
        np.zeros(len(labels), dtype=np.float32),
        np.array(labels, dtype=np.int64),
    )


def test_keywords_are_the_tokens_of_highest_weight_best_first():
    model = model_of([[0.1, 0.4, 0.2, 0.3]], [0])
    assert keywords_of_labels(model, 1, 3) == [("bread", "dates", "cheese")]


def test_only_positive_weights_make_keywords():
    model = model_of([[-0.9, 0.4, 0, -0.1]], [0])
    assert keywords_of_labels(model, 1, 4) == [("bread",)]


def test_equal_weights_are_ordered_by_column():
    assert keywords_of_labels(model_of([[0.5] * 4], [0]), 1, 2) == [("apple", "bread")]


def test_labels_without_a_classifier_have_no_keywords():
    model = model_of([[1, 0, 0, 0], [0, 0, 0, 1]], [1, 3])
    assert keywords_of_labels(model, 5, 2) == [(), ("apple",), (), ("dates",), ()]


def test_no_keywords_wanted_none_given():
    assert keywords_of_labels(model_of([[1, 1, 1, 1]], [0]), 1, 0) == [()]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, tiny_corpus):
    dataset = open_dataset(tiny_corpus)
    tfidf, features = fit_tfidf(dataset.split("train").texts(), SparseConfig())
    folder = tmp_path_factory.mktemp("sparse")
    truth = dataset.split("train").scan().labels
    model = fit_sparse_model(tfidf, features, truth, SparseConfig(), seed=0, folder=folder)
    return dataset.catalogue.training_counts, model


def test_a_label_with_one_training_document_has_keywords(fitted):
    counts, model = fitted
    keywords = keywords_of_labels(model, len(counts), 20)
    numbers = np.array([len(words) for words in keywords])
    assert (counts == 1).sum() > 50
    assert (numbers[counts == 1] >= 1).all()
    assert (numbers[counts == 0] == 0).all()
    assert numbers.max() == 20


def test_a_fitted_label_s_keywords_fall_in_weight(fitted):
    counts, model = fitted
    keywords = keywords_of_labels(model, len(counts), 5)
    column_of = {token: column for column, token in enumerate(model.tfidf.tokens)}
    weights = model.weights.toarray()
    for row, label in enumerate(model.labels):
        chosen = [weights[row, column_of[word]] for word in keywords[label]]
        assert chosen == sorted(weights[row][weights[row] > 0], reverse=True)[:5]


def described(label: Label, words: tuple[str, ...]) -> str:
    return pseudo_descriptions(LabelCatalogue([label]), [words])[0]


@pytest.mark.parametrize(
    ("description", "words", "expected"),
    [
        ("", ("puzzle", "clue"), "kakuro. puzzle clue"),
        ("A logic puzzle", ("clue",), "kakuro. A logic puzzle. clue"),
        ("", (), "kakuro"),  # the paper's DE-ret
        (" A logic puzzle ", (), "kakuro. A logic puzzle"),
    ],
)
def test_a_pseudo_description_is_name_description_and_keywords(description, words, expected):
    assert described(Label("1", "kakuro", description), words) == expected


def test_a_keyword_that_is_a_word_of_the_name_stays():
    assert described(Label("1", "jazz music"), ("jazz", "piano")) == "jazz music. jazz piano"
