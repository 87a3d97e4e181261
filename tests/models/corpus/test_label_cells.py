"""How a cell is divided into labels."""

import json

import pytest

from longtail.models.corpus.columns import CorpusOptions
from longtail.models.corpus.label_cells import label_key, labels_of_text
from longtail.models.errors import DataError
from longtail.models.labels.cells import labels_of_cell


@pytest.mark.parametrize(
    ("cell", "options", "expected"),
    [
        ("a;b", {}, ["a", "b"]), ("<u:1> <u:2>\t<u:3>", {}, ["u:1", "u:2", "u:3"]),
        ('["a;b"]', {}, ["a;b"]), ("a|b;c", {"label_delimiter": "|"}, ["a", "b;c"]),
        ("a;b", {"one_row_per_label": True}, ["a;b"]),
        ("a|b", {"one_row_per_label": True, "label_delimiter": "|"}, ["a", "b"]),
        ("a;b;", {}, ["a", "b"]), ("['a b', 'c;d']", {}, ["a b", "c;d"]),
        ("""['it\\'s', "d'or", 'x\\u00e9']""", {}, ["it's", "d'or", "xé"]),
        ("{'a', 'b'}", {}, ["a", "b"]), ("[np.str_('a'), np.str_('b')]", {}, ["a", "b"]),
        ("['a', 7, ]", {}, ["a", 7]), ("[a, b]", {}, ["[a, b]"]), ("(2020)", {}, ["(2020)"]),
        ("['a'] or b", {"label_delimiter": "|"}, ["['a'] or b"]),
    ],
)  # fmt: skip
def test_a_cell_is_divided(cell, options, expected):
    assert labels_of_text(cell, "labels", CorpusOptions(**options)) == expected


@pytest.mark.parametrize(
    "cell",
    ["['a', 'b'", "['a', nan]", "['a' ... 'b']", "['a''b']", '["a", b]', "{'a': 1}",
     "['\\x']", "[np.str_('a', 'b']", "['a', __import__('os')]", "['\\\\d', '\\d']"],
)  # fmt: skip
def test_what_begins_as_a_list_and_is_none_is_no_label(cell):
    with pytest.raises(DataError, match=r"begins as a list .*; write a JSON list, such as \["):
        labels_of_text(cell, "labels", CorpusOptions())


@pytest.mark.parametrize(
    "cell",
    [
        ";".join(["a"] * 100_001), " ".join(["<u:1>"] * 100_001), "a" * 4_000_001,
        json.dumps(["a"] * 100_001), str(["a"] * 100_001),
    ],
)  # fmt: skip
def test_a_cell_of_very_many_labels_is_refused_before_it_is_divided(cell, monkeypatch):
    monkeypatch.setattr("longtail.models.corpus.label_cells.listed_labels", None)
    with pytest.raises(DataError, match="expected at most 100,000 labels"):
        labels_of_text(cell, "labels", CorpusOptions())


def test_known_labels_are_looked_up_a_few_times_for_each_part():
    asked = []
    cell = ";".join(f"l{number}" for number in range(500))
    assert len(labels_of_cell(cell, lambda name: asked.append(name) or name in {"l7;l8"})) == 499
    assert len(asked) < 500 * 16


@pytest.mark.parametrize(
    ("entry", "expected"),
    [(" a ", "a"), (3, "3"), ("<u:1>", "u:1"), ("<a>", "<a>"), ({"uri": "<u:1>"}, "u:1"),
     ({"id": 7}, "7"), ({"uri": None, "label": "x"}, "x")],
)  # fmt: skip
def test_entries_name_labels(entry, expected):
    assert label_key(entry) == expected
