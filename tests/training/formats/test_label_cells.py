"""How a cell is divided into labels."""

from __future__ import annotations

import pytest

from models.errors import DataError
from training.formats.label_cells import label_key, labels_of_text
from training.formats.options import CorpusOptions


@pytest.mark.parametrize(
    ("cell", "options", "expected"),
    [
        ("  ", {}, []),
        ("a;b", {}, ["a", "b"]),
        ("<u:1> <u:2>\t<u:3>", {}, ["u:1", "u:2", "u:3"]),
        ("a <b>", {}, ["a <b>"]),
        ('["a;b"]', {}, ["a;b"]),
        ("a|b;c", {"label_delimiter": "|"}, ["a", "b;c"]),
        ("a  b", {"label_delimiter": " "}, ["a", "b"]),
        ("a;b", {"one_row_per_label": True}, ["a;b"]),
        ("a|b", {"one_row_per_label": True, "label_delimiter": "|"}, ["a", "b"]),
    ],
)
def test_a_cell_is_divided(cell, options, expected):
    assert labels_of_text(cell, "labels", CorpusOptions(**options)) == expected


def test_subject_uris_are_divided_at_spaces():
    assert labels_of_text("u:1 u:2", "subject_uris", CorpusOptions()) == ["u:1", "u:2"]


def test_a_known_label_holds_the_delimiter():
    known = {"a|b"}.__contains__
    assert labels_of_text(" a|b ", "labels", CorpusOptions(label_delimiter="|"), known) == [" a|b "]


def test_a_delimiter_without_a_label_is_refused():
    with pytest.raises(DataError, match=r"tags is 'a\|' .* on each side of every '\|'; remove"):
        labels_of_text("a|", "tags", CorpusOptions(label_delimiter="|"))


@pytest.mark.parametrize(
    ("entry", "expected"),
    [(" a ", "a"), (3, "3"), ("<u:1>", "u:1"), ("<a>", "<a>"), ({"uri": "<u:1>"}, "u:1"),
     ({"id": 7}, "7"), ({"uri": None, "label": "x"}, "x")],
)  # fmt: skip
def test_entries_name_labels(entry, expected):
    assert label_key(entry) == expected


@pytest.mark.parametrize("entry", [" ", None, 1.5, True, [], {}, {"uri": {"x": 1}}, {"uri": []}])
def test_entries_that_name_none_are_refused(entry):
    with pytest.raises(DataError, match="expected ids or names of labels"):
        label_key(entry)
