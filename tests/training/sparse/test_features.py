"""What the sparse model reads: tf-idf of texts, or the features that a corpus has."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from models.errors import DataError
from models.parts.storage import read_sparse
from models.scorers.tfidf import unit_rows
from training.configuration.sections import SparseConfig
from training.data.dataset import open_dataset
from training.sparse.features import split_features, training_features
from training.sparse.tfidf import fit_tfidf


@pytest.fixture(scope="module")
def tfidf(trained_sparse):
    return read_sparse(trained_sparse.bundle).tfidf


def test_rows_get_the_length_one_and_zeros_stay():
    found = unit_rows(csr_array(np.array([[3, 0, -4], [0, 0, 0], [0, 2, 0]], dtype=np.float32)))
    np.testing.assert_allclose(found.toarray(), [[0.6, 0, -0.8], [0, 0, 0], [0, 1, 0]], rtol=1e-6)


def test_the_features_of_texts_are_their_tf_idf(tiny_corpus):
    dataset = open_dataset(tiny_corpus)
    found, rows = training_features(dataset, SparseConfig())
    wanted, wanted_rows = fit_tfidf(dataset.split("train").texts(), SparseConfig())
    assert found.tokens == wanted.tokens
    assert (rows != wanted_rows).nnz == 0


def test_features_are_taken_as_they_are_at_unit_length(feature_corpus, tiny_corpus, tfidf):
    found, rows = training_features(open_dataset(feature_corpus), SparseConfig())
    assert (found.tokens, found.lemmas, set(found.idf.tolist())) == (tfidf.tokens, {}, {1.0})
    wanted = tfidf.transform(open_dataset(tiny_corpus).split("train").texts())
    assert (rows.dtype, rows.shape) == (np.float32, wanted.shape)
    np.testing.assert_allclose(rows.toarray(), wanted.toarray(), atol=1e-6)


def test_texts_and_features_of_one_split_give_the_same_rows(feature_corpus, tiny_corpus, tfidf):
    texts, features = (
        split_features(tfidf, dataset.input, dataset, "dev")
        for dataset in map(open_dataset, (tiny_corpus, feature_corpus))
    )
    np.testing.assert_allclose(texts.toarray(), features.toarray(), atol=1e-6)


def test_a_corpus_of_the_other_kind_is_refused(feature_corpus, tiny_corpus, tfidf):
    with pytest.raises(DataError, match=r"holds features, but the model reads texts; evaluate on"):
        split_features(tfidf, "text", open_dataset(feature_corpus), "dev")
    with pytest.raises(DataError, match=r"holds texts, but the model reads features"):
        split_features(tfidf, "features", open_dataset(tiny_corpus), "dev")


def test_features_of_other_names_are_refused(feature_corpus, tfidf, tmp_path):
    corpus = Path(shutil.copytree(feature_corpus, tmp_path / "corpus"))
    names = (corpus / "Xf.txt").read_text().splitlines()
    (corpus / "Xf.txt").write_text("\n".join([*reversed(names), ""]))
    with pytest.raises(DataError, match=r"features are not the model's .* in the same order"):
        split_features(tfidf, "features", open_dataset(corpus), "dev")
