"""Tf-idf rows, compared with those that scikit-learn makes."""

from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize

from longtail.models.scorers.tfidf import TOKEN_PATTERN, TfidfModel, terms_of, tokenize

TOKENS = ("oil", "olive", "olive oil", "trade", "zebra")
IDF = np.array([1.5, 2.25, 3.1, 1.0, 7.7], dtype=np.float32)
WORDS = st.sampled_from([*TOKENS, "unknown", "Olive", "a"])
TEXTS = st.lists(st.lists(WORDS, max_size=30).map(" ".join), max_size=8)


@given(TEXTS)
def test_rows_are_to_the_bit_those_of_scikit_learn(texts):
    model = TfidfModel(TOKENS, IDF, max_ngram=2)
    rows = model.transform(iter(texts))
    assert rows.shape == (len(texts), len(TOKENS))
    columns = {token: column for column, token in enumerate(TOKENS)}
    expected = np.zeros((0, len(TOKENS)), dtype=np.float32)
    if texts:
        counter = CountVectorizer(analyzer=partial(terms_of, max_ngram=2), vocabulary=columns)
        counts = csr_array(counter.transform(texts), dtype=np.float32)
        counts.data = (1 + np.log(counts.data)) * IDF[counts.indices]
        expected = normalize(counts).toarray()
    assert rows.dtype == np.float32
    assert rows.has_sorted_indices
    assert np.array_equal(rows.toarray().view(np.int32), expected.view(np.int32))


@given(st.text() | st.text(alphabet="aé水_7-.\n\0\x1e\u0301 S", max_size=30))
def test_words_are_those_of_the_pattern(text):
    assert tokenize(text) == TOKEN_PATTERN.findall(text.lower())
