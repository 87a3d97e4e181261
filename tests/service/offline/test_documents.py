"""CSV files as `longtail predict` reads them: delimiters and columns are recognised and told."""

from __future__ import annotations

import json

import pytest

from models.errors import DataError
from service.offline.documents import as_question, check_source, document_lines
from service.wire.lines import LineError, parse_line


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_each_delimiter_is_read(delimiter, tmp_path):
    path = tmp_path / "docs.csv"
    path.write_text(f"id{delimiter}text\n1{delimiter}olive oil\n", encoding="utf-8")
    (line,) = document_lines(path)
    assert json.loads(line) == {"id": "1", "text": "olive oil"}


def test_what_was_recognised_is_told(tmp_path):
    path = tmp_path / "docs.csv"
    path.write_text("TEXT;labels\nolive oil;1\n", encoding="utf-8")
    labels, delimiter, columns = check_source(path)
    assert labels == "The documents have labels, which are left out."
    assert delimiter == f"{path}: columns are taken to be separated by semicolons"
    assert columns.endswith("'TEXT' as 'text'")
    (line,) = document_lines(path)
    assert json.loads(line) == {"text": "olive oil"}


def test_a_table_that_is_as_usual_needs_no_remark(tmp_path):
    path = tmp_path / "docs.csv"
    path.write_text("text\nolive oil\n", encoding="utf-8")
    assert check_source(path) == []


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
