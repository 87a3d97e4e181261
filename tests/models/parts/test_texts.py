"""Texts that can't be ranked are refused with what to give instead."""

import pytest

from longtail.models.errors import RequestError
from longtail.models.parts.texts import checked_texts
from longtail.models.predict.predictor import Predictor


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


def test_a_model_refuses_a_single_string(trained_sparse):
    with pytest.raises(RequestError, match="texts is a single str"):
        Predictor.of_bundle(trained_sparse.bundle).predict("olive", k=1)
