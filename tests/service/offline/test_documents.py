"""CSV files as `longtail predict` reads them: delimiters and columns are recognised and told."""

from __future__ import annotations

import json

import pytest

from longtail.models.errors import DataError
from longtail.service.offline.documents import (
    DocumentColumns,
    as_question,
    check_source,
    document_lines,
)
from longtail.service.wire.lines import LineError, parse_line


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_each_delimiter_is_read(delimiter, tmp_path):
    path = tmp_path / "docs.csv"
    path.write_text(f"id{delimiter}text\n1{delimiter}olive oil\n", encoding="utf-8")
    (line,) = document_lines(path)
    assert json.loads(line) == {"id": "1", "text": "olive oil"}


def test_a_table_without_texts_is_refused(tmp_path):
    path = tmp_path / "docs.csv"
    path.write_text("name;tags\na;b\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"docs\.csv, line 1: the header has .*'text' or 'title'"):
        check_source(path)


@pytest.mark.parametrize("row", ["1,olive oil, refined", "1"])
def test_a_row_with_other_cells_than_the_header_is_an_error_and_not_cut(row, tmp_path):
    path = tmp_path / "docs.csv"
    path.write_text(f"id,text\n{row}\n\n2,whales\n", encoding="utf-8")
    torn, good = document_lines(path)
    expected = f"the row has {len(row.split(','))} cells; expected 2, as in the header; put a text"
    with pytest.raises(LineError, match=expected):
        parse_line(torn, {}, as_question)
    assert parse_line(good, {}, as_question).text == "whales"


NAMED = DocumentColumns(("Titel", "Inhalt"), "Nr")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "Nr;Titel;Inhalt;text\n7;Fish;Cod;no\n"),
        ("a.tsv", "Nr\tTitel\tInhalt\n7\tFish\tCod\n"),
        ("a.jsonl", '\ufeff{"Nr": "7", "Titel": "Fish", "Inhalt": "Cod", "text": "no"}\n'),
    ],
)
def test_columns_can_be_named(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    check_source(path, NAMED)
    (line,) = document_lines(path, columns=NAMED)
    found = parse_line(line, {}, as_question)
    assert (found.id, found.text) == ("7", "Fish\nCod")


def test_a_column_that_is_named_and_not_there_is_told(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("Nr;Titel\n7;Fish\n")
    with pytest.raises(DataError, match="expected 'Titel', 'Inhalt', 'Nr' among them"):
        check_source(path, NAMED)
    path.write_text("Nr;Other\n7;Fish\n")
    with pytest.raises(DataError, match="name others with --text-columns"):
        check_source(path)


def test_lines_that_are_no_objects_stay_and_are_told_later(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('[1]\nnot JSON\n{"Titel": 5, "Inhalt": "Cod"}\n')
    lines = list(document_lines(path, columns=NAMED))
    assert lines[:2] == [b"[1]", b"not JSON"]
    with pytest.raises(LineError, match="text"):
        parse_line(lines[2], {}, as_question)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt"])
def test_other_encodings_of_unicode_are_read(tmp_path, name, encoding):
    path = tmp_path / name
    written = {"a.csv": "text\n\u00f6l\n", "a.jsonl": '{"text": "\u00f6l"}\n', "a.txt": "\u00f6l\n"}
    path.write_bytes(written[name].encode(encoding))
    check_source(path)
    (line,) = document_lines(path)
    assert parse_line(line.removeprefix(b"\xef\xbb\xbf"), {}, as_question).text == "\u00f6l"


def test_a_row_in_another_encoding_is_told(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("text\n\u00f6l\noil\n".encode("cp1252"))
    torn, good = document_lines(path)
    with pytest.raises(
        LineError, match=r"the row is not UTF-8 .byte 0xf6.; save the file as UTF-8"
    ):
        parse_line(torn, {}, as_question)
    assert parse_line(good, {}, as_question).text == "oil"


def test_each_line_of_a_text_file_can_be_a_document(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("Fish\n\n  \nCod")
    every = [json.loads(x)["text"] for x in document_lines(path, is_each_line_text=True)]
    assert every == ["Fish", "", "  ", "Cod"]
    assert [bool(line.strip()) for line in document_lines(path)] == [True, False, False, True]
