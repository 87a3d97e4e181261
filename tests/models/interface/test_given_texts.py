"""Texts are taken out of whatever holds them, and nothing else is taken for texts."""

import numpy as np
import pytest

from longtail.models.errors import RequestError
from longtail.models.interface.given_texts import texts_of


class Frame(dict):
    """A data frame of some library: columns by name."""

    @property
    def columns(self):
        return list(self)


def test_frames_have_a_column_of_texts_or_titles_and_contents():
    assert list(texts_of(Frame(text=["a", "b"], title=["t", None]))) == ["t\na", "b"]
    assert list(texts_of(Frame(text=["a"], content=["c"]))) == ["a"]
    frame = Frame(title=["t", "t", None], content=["c", float("nan"), "c"], other=[1, 2, 3])
    assert list(texts_of(frame)) == ["t\nc", "t", "c"]
    assert list(texts_of(Frame(content=["c"]))) == ["c"]


def test_mappings_in_a_list_are_read_as_rows_of_a_frame():
    found = texts_of([{"title": "t", "text": "a", "id": 1}, {"text": "b"}, "c", {"title": "d"}])
    assert list(found) == ["t\na", "b", "c", "d"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("text", "single str"),
        ({"a": "olive"}, "texts are a dict, expected a list of texts"),
        (np.array([["a"], ["b"]]), r"shape \(2, 1\), expected one text a row"),
        (["a", None], "text 1 is None"),
        (["a", {"words": "b"}], r"text 1 is \{'words': 'b'\} \(dict\), expected a string"),
        ([{"title": 5, "text": "b"}], r"text 0 is 5 \(int\), expected a string"),
        (Frame(words=["a"]), "has the columns words; expected 'text', or 'title' and 'content'"),
        (Frame(title=["t", None], content=["c", " "]), "text 1 is blank"),
    ],
)
def test_other_things_are_refused(data, message):
    with pytest.raises(RequestError, match=message):
        texts_of(data)
