"""Character n-grams: what texts are taken apart into, where terms stand, and what is stored."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.models.explain import spans_of
from longtail.models.scorers.character_terms import unspaced_share
from longtail.models.scorers.tfidf import TfidfModel, terms_of


def terms(text: str) -> list[str]:
    return terms_of(text, 1, "char")


def test_terms_are_n_grams_within_a_run_of_one_script():
    assert terms("新手机 X9") == ["新", "手", "机", "新手", "手机", "新手机", "x", "9", "x9"]
    assert terms("手机iOS") == ["手", "机", "手机", "i", "o", "s", "io", "os", "ios"]


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("这是中文。", 1.0),
        ("これはテストです", 1.0),
        ("ภาษาไทย", 1.0),
        ("plain words, 42", 0.0),
        ("한국어 단어", 0.0),
        ("中文ab", 0.5),
        ("?! 42", 0.0),
        ("", 0.0),
    ],
)
def test_share_of_letters_in_scripts_without_spaces(text, share):
    assert unspaced_share([text]) == share


@given(st.text())
def test_spans_are_of_the_characters_as_they_came(text):
    found = terms(text)
    model = TfidfModel(found or ["x"], np.ones(len(found) or 1, dtype=np.float32), analyzer="char")
    spans = spans_of(text, model, set(found))
    assert spans.keys() == set(found)
    for token, places in spans.items():
        for start, stop in places:
            assert 0 <= start < stop <= len(text)
            assert token in text[start:stop].lower()
