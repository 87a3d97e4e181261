"""CSV files as `longtail predict` reads them: delimiters and columns are recognised and told."""

import json
import os
from threading import Thread

import pytest

from longtail.models.corpus.columns import RECOGNISED, CorpusOptions
from longtail.models.corpus.files import find_unlabelled
from longtail.models.errors import DataError
from longtail.models.files.text_files import BadLine
from longtail.service.offline.documents import (
    as_question,
    check_source,
    documents_of,
    read_as_trained,
)


def texts_in(source):
    """The texts of documents that can be read."""
    found = documents_of(source, 10**6)
    questions = (x if isinstance(x, dict) else json.loads(x) for x in found)
    return [as_question(source.options, x)["text"] for x in questions]


@pytest.mark.parametrize("row", ["1,olive oil, refined", "1"])
def test_a_row_with_other_cells_than_the_header_is_an_error_and_not_cut(row, tmp_path):
    path = tmp_path / "docs.csv"
    path.write_text(f"id,text\n{row}\n\n2,whales\n", encoding="utf-8")
    torn, good = documents_of(find_unlabelled(path), 10**6)
    expected = f"{len(row.split(','))} cells; expected 2, as in the header; put a text"
    assert isinstance(torn, BadLine) and torn.reason.startswith(expected)
    assert good == {"id": "2", "text": "whales"}


TITLED_FILES = {
    "docs.csv": "Titel,Text,content\nT,olive oil,c\n,whales,c\n",
    "docs.jsonl": '{"title": "T", "text": "olive oil", "content": "c"}\n'
    '{"title": null, "text": "whales"}\n',
}


@pytest.mark.parametrize("name", TITLED_FILES)
@pytest.mark.parametrize(
    ("trained", "expected"),
    [
        ((), ["T\nolive oil", "whales"]),
        (("title", "text"), ["T\nolive oil", "whales"]),
        (("text",), ["olive oil", "whales"]),
    ],
)
def test_a_title_beside_the_text_is_joined_unless_the_training_read_texts_alone(
    name, trained, expected, tmp_path
):
    path = tmp_path / name
    path.write_text(TITLED_FILES[name], encoding="utf-8")
    assert texts_in(read_as_trained(find_unlabelled(path), trained)) == expected


@pytest.mark.parametrize("name", ["docs.csv", "docs.jsonl"])
def test_columns_that_only_the_training_had_change_nothing(name, tmp_path):
    path = tmp_path / name
    content = "id,text\n1,whales\n" if name == "docs.csv" else '{"id": 1, "text": "whales"}\n'
    path.write_text(content, encoding="utf-8")
    for trained in [("text",), ("title", "text"), ("abstract",)]:
        assert read_as_trained(find_unlabelled(path), trained).options == RECOGNISED


@pytest.mark.parametrize("header", ["Nr\tFrage", "nr\tbody_text", "Doc Nr\tid", "Labels\tx y"])
def test_a_header_without_a_text_is_not_taken_for_a_text_and_its_labels(header, tmp_path):
    path = tmp_path / "docs.tsv"
    path.write_text(f"{header}\n1\twhales\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"expected 'text' .* name others with --text-columns"):
        check_source(find_unlabelled(path))


def test_a_folder_with_several_splits_is_refused_with_their_names(tmp_path):
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text('{"text": "whales"}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"give one: '.*train.jsonl', '.*test.jsonl'"):
        find_unlabelled(tmp_path)


def test_a_file_of_a_folder_that_can_t_be_read_is_named(tmp_path):
    for name, content in {"a": b"whales", "b": b"caf\xe9", "c": b"a " * 20}.items():
        (tmp_path / f"{name}.txt").write_bytes(content)
    source, seen = find_unlabelled(tmp_path), []
    good, other, long = documents_of(source, 30, seen.append)
    assert good == {"id": "a", "text": "whales"}
    assert other.reason.startswith("b: not UTF-8 (byte 0xe9 at position 3)")
    assert long.reason == "c.txt has 40 bytes, expected at most 30; divide it"
    assert sum(seen) == 50


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("name", ["pipe.csv", "pipe.tsv"])
def test_a_pipe_is_read_once(name, tmp_path):
    path = tmp_path / name
    os.mkfifo(path)
    delimiter = "\t" if name == "pipe.tsv" else ";"
    content = f"sep={delimiter}\nNr{delimiter}Text\n1{delimiter}whales\n"
    writer = Thread(target=path.write_text, args=(content,))
    writer.start()
    source = find_unlabelled(path, CorpusOptions(id_column="nr"))
    assert check_source(source) == [] and read_as_trained(source, ("text",)) == source
    assert list(documents_of(source, 10**6)) == [{"id": "1", "text": "whales"}]
    writer.join()


def test_a_line_too_long_for_memory_is_refused_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("longtail.models.files.text_files.MAX_LINE_BYTES", 100)
    path = tmp_path / "docs.jsonl"
    path.write_text(json.dumps({"text": "a" * 200}) + '\n{"text": "whales"}\n', encoding="utf-8")
    source = find_unlabelled(path)
    assert check_source(source) == [] and read_as_trained(source, ("abstract",)) == source
    assert list(documents_of(source, 50)) == [None, b'{"text": "whales"}']
