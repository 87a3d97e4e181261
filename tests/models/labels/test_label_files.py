"""Label files, in both forms: what is read, and what is reported as not read."""

import json
from pathlib import Path

import pytest

from longtail.models.errors import DataError
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.labels.files import OWN_FORM, form_of, read_label_file


def written(folder: Path, *labels: dict[str, object], name: str = "labels.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(label) + "\n" for label in labels))
    return path


def refusal(path: Path, form=OWN_FORM) -> str:
    with pytest.raises(DataError) as caught:
        read_label_file(path, form)
    return str(caught.value)


def test_a_label_may_have_schemes(tmp_path):
    rows = [{"scheme": "topic"}, {"scheme": ["genre", " topic "]}, {"scheme": None}, {}]
    lines = ({"id": number, "name": "a", **row} for number, row in enumerate(rows))
    expected = [("topic",), ("genre", "topic"), (), ()]
    labels = read_label_file(written(tmp_path, *lines), OWN_FORM)
    assert [label.scheme for label in labels] == expected
    catalogue = LabelCatalogue(labels)
    assert [x.scheme for x in LabelCatalogue.from_jsonl(catalogue.to_jsonl())] == expected
    rows_of_schemes = {name: x.tolist() for name, x in catalogue.rows_of_schemes.items()}
    assert rows_of_schemes == {"topic": [0, 1], "genre": [1]}
    table = tmp_path / "labels.csv"
    table.write_text("id,name,scheme\n0,a,topic\n1,a,genre; topic\n2,a,\n3,a,\n")
    assert [label.scheme for label in read_label_file(table, OWN_FORM)] == expected
    table = tmp_path / "labels.tsv"
    table.write_text("id\tname\tscheme\n0\ta\ttopic\n1\ta\tgenre; topic\n2\ta\t\n3\ta\t\n")
    assert form_of(table) is OWN_FORM
    assert [label.scheme for label in read_label_file(table, OWN_FORM)] == expected
    table.write_text("<u:0>\ta name\n")  # Annif's
    assert [(x.id, x.name) for x in read_label_file(table, OWN_FORM)] == [("u:0", "a name")]


def test_equal_ids_are_refused_with_both_lines(tmp_path):
    path = written(
        tmp_path, {"id": "1", "name": "a"}, {"id": 2, "name": "b"}, {"id": 1, "name": "c"}
    )
    assert "labels.jsonl, line 3: id '1' again, as on line 1" in refusal(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"id": "1", "name": "a"}\n{', r"labels.jsonl, line 2: not JSON"),
        (b'{"id": "1", "name": 2}', "line 1: name is 2 (int); expected a string"),
        (b'{"id": "1", "name": " "}', "line 1: no 'name'; the line has 'id', 'name'"),
        (b'{"id": "1", "name": "\\ud800"}', "name holds '\\ud800', half of a surrogate pair"),
        (b"\xff", "line 1: not UTF-8 (byte 0xff at position 0)"),
    ],
)
def test_a_file_that_is_none_of_labels_is_refused(tmp_path, content, words):
    path = tmp_path / "labels.jsonl"
    path.write_bytes(content)
    assert form_of(path) is OWN_FORM
    assert words in refusal(path)
