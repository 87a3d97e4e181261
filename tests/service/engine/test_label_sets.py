"""Stored sets of labels: read, checked, and read again when their files change."""

import json
import logging

import pytest

from longtail.models.errors import ConfigError, RequestError
from longtail.service.engine import queries
from longtail.service.engine.queries import LabelSets


@pytest.fixture
def folder(tmp_path):
    """Two sets, and files that are none."""
    folder = tmp_path / "sets"
    folder.mkdir()
    (folder / "food.txt").write_text("\ufeffL1\n\n  L2 \r\nL1\nhttp://x.org/a b\n", "utf-8")
    (folder / "rare.json").write_text(json.dumps(["L3", " L4"]))
    (folder / ".hidden.json").write_text("nonsense")
    (folder / "notes.md").write_text("nonsense")
    return folder


def test_a_file_is_a_list_of_ids_or_an_id_on_each_line(folder):
    sets = LabelSets(folder)
    assert sets.get("food").ids == ("L1", "L2", "http://x.org/a b")
    assert sets.get("rare").ids == ("L3", " L4")
    assert [each.name for each in sets.all()] == ["food", "rare"]


def test_sets_come_and_go_without_a_restart(folder):
    sets = LabelSets(folder)
    (folder / "new.txt").write_text("L5\n")
    (folder / "rare.json").unlink()
    assert sets.get("new").ids == ("L5",)
    assert [each.name for each in sets.all()] == ["food", "new"]
    with pytest.raises(
        RequestError, match="label set 'rare' is not stored; the sets are food, new"
    ):
        sets.get("rare")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert sets.all() == []


def test_a_set_whose_file_can_not_be_read_any_more_stays_as_it_was(folder, caplog):
    sets = LabelSets(folder)
    (folder / "rare.json").write_text("[1]")
    with caplog.at_level(logging.ERROR):
        assert sets.get("rare").ids == sets.get("rare").ids == ("L3", " L4")
    assert len(caplog.records) == 1
    assert "the label set stays as it was" in caplog.text
    (folder / "new.json").write_text("[")
    assert [each.name for each in sets.all()] == ["food", "rare"]


@pytest.mark.parametrize(
    "name", ["../sets/food", "food.txt", "/etc/passwd", "", ".hidden", "a" * 101]
)
def test_only_names_are_looked_up_never_paths(folder, name):
    with pytest.raises(RequestError, match="is not stored"):
        LabelSets(folder).get(name)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", b"[", r"can't be read \(JSONDecodeError\)"),
        ("a.json", b"[" * 100_000, r"can't be read \(RecursionError\)"),
        ("a.json", b'{"L1": 1}', "expected a JSON list of label ids"),
        ("a.json", b"[]", "has no label"),
        ("a b.txt", b"L1", "expected a name of 1 to 100 letters"),
        ("food.json", b'["L1"]', "label set 'food' has two files"),
        ("a.txt", b"L1\n" * 9000, "more than 20000 bytes"),
    ],
)
def test_a_bad_file_stops_the_start(folder, name, content, words, monkeypatch):
    monkeypatch.setattr(queries, "MAX_BYTES", 20_000 if b"\n" in content else 10**6)
    (folder / name).write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        LabelSets(folder)
