"""Which documents of a file are to be labelled."""

from __future__ import annotations

import json

import pytest

from longtail.models.errors import DataError
from longtail.service.feedback.entries import sha256_of
from longtail.service.offline import queue as queue_module
from longtail.service.offline.queue import read_queue


@pytest.fixture
def read(tmp_path):
    def read_lines(*records, name="queue.jsonl", **options):
        path = tmp_path / name
        path.write_text("".join(json.dumps(each) + "\n" for each in records))
        found = list(read_queue(path, options.get("max_text_characters", 50)))
        assert all(each.text_sha256 == sha256_of(each.text) for each in found)
        return [(each.id, each.text) for each in found]

    return read_lines


def test_a_selection_is_read_each_text_once(read):
    chosen = {"rank": 1, "index": 4, "text": "b", "labels": [{"id": "L1"}], "gain": 2.0}
    found = read(chosen | {"id": 7}, {"id": "x", "text": "a"}, {"id": "y", "text": "b"})
    assert found == [("7", "b"), ("x", "a")]


def test_without_an_id_the_text_names_the_document(read):
    assert read({"text": "b\r\n"}, {"text": "b", "id": ""}) == [
        (f"text-{sha256_of(text)[:32]}", text) for text in ("b\r\n", "b")
    ]


def test_other_forms_are_read_as_by_predict(tmp_path):
    path = tmp_path / "queue.csv"
    path.write_text("id;title;content\n5;Oil;of olives\n")
    assert [(x.id, x.text) for x in read_queue(path, 50)] == [("5", "Oil\nof olives")]


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"text": " "}, "document 2: /text: The text is empty or only white space"),
        ({"text": "x" * 51}, "document 2: text: got 51 characters, expected at most 50"),
        ({"text": "b", "id": "x" * 201}, "document 2: id: got 'xxx.*expected at most 200"),
        (
            {"text": "b", "id": "a\n"},
            r"document 2: id: got 'a\\n'.*without control characters",
        ),
        ({"text": "b", "id": "\ud800"}, "document 2: /id: Give the id as a string of at most"),
        ({"no": 1}, "document 2"),
    ],
)
def test_what_cannot_be_labelled_is_refused_by_its_place(read, record, words):
    with pytest.raises(DataError, match=words):
        read({"text": "a"}, record)


def test_more_documents_than_fit_are_refused(read, monkeypatch):
    monkeypatch.setattr(queue_module, "MAX_DOCUMENTS", 2)
    assert len(read({"text": "a"}, {"text": "b"}, {"text": "a"})) == 2
    with pytest.raises(DataError, match="more than 2 documents"):
        read({"text": "a"}, {"text": "b"}, {"text": "c"})
