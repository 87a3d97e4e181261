"""Tf-idf rows, compared with those that scikit-learn makes."""

import json
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize

from longtail.models.errors import BundleCorruptError
from longtail.models.explain import spans_of
from longtail.models.scorers.tfidf import (
    TITLE,
    TOKEN_PATTERN,
    TfidfModel,
    terms_of,
    title_end,
    tokenize,
)

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


TITLE_WORDS = ("oil", "zebra")
TITLED = TfidfModel(
    (*TOKENS, *(TITLE + word for word in TITLE_WORDS)),
    np.append(IDF, np.array([2.5, 1.25], dtype=np.float32)),
    max_ngram=2,
    title_weight=0.5,
)
LINES = st.lists(TEXTS.map(" ".join), max_size=3).map("\n".join)


@given(st.lists(LINES, max_size=6))
def test_a_title_has_a_row_of_its_own_beside_that_of_the_whole_text(texts):
    plain = TfidfModel(TOKENS, IDF, max_ngram=2)
    of_title = TfidfModel(TITLE_WORDS, TITLED.idf[len(TOKENS) :])
    rows = TITLED.transform(texts)
    assert rows.has_sorted_indices
    for row, text in zip(rows.toarray(), texts, strict=True):
        whole = plain.transform([text]).toarray()[0]
        first, _, rest = text.lstrip().partition("\n")
        if not rest.strip():
            assert np.array_equal(row, np.append(whole, [0, 0]))  # to the bit
            continue
        expected = np.append(whole, 0.5 * of_title.transform([first]).toarray()[0])
        length = np.linalg.norm(expected)
        np.testing.assert_allclose(row, expected / (length or 1), rtol=1e-6, atol=1e-7)


def test_what_a_title_is():
    assert title_end("Oil\nof olives") == 3
    assert title_end("\n  Oil\nof olives") == 6
    assert title_end("") == title_end("one line") == title_end("one line\n \n") == 0


def test_words_of_titles_stand_where_the_title_has_them():
    text = "Olive OIL\nand oil"
    found = spans_of(text, TITLED, {"oil", "title: oil"})
    assert found == {"oil": [(6, 9), (14, 17)], "title: oil": [(6, 9)]}


def test_a_model_with_words_of_titles_is_read_as_it_was_written():
    again = TfidfModel.from_json(TITLED.to_json(), TITLED.idf)
    text = "olive oil\nzebra"
    assert again.to_json() == TITLED.to_json()
    assert np.array_equal(again.transform([text]).toarray(), TITLED.transform([text]).toarray())


def test_words_of_titles_that_are_not_the_last_tokens_are_refused():
    written = json.loads(TITLED.to_json())
    written["tokens"].reverse()
    with pytest.raises(BundleCorruptError, match="words of titles are not the last tokens"):
        TfidfModel.from_json(json.dumps(written), TITLED.idf)


@given(st.text() | st.text(alphabet="aé水_7-.\n\0\x1e\u0301 S", max_size=30))
def test_words_are_those_of_the_pattern(text):
    assert tokenize(text) == TOKEN_PATTERN.findall(text.lower())
