"""CSV files as `longtail predict` reads them: delimiters and columns are recognised and told."""

import pytest

from longtail.service.offline.documents import (
    as_question,
    check_source,
    document_lines,
)
from longtail.service.wire.lines import LineError, parse_line


@pytest.mark.parametrize("row", ["1,olive oil, refined", "1"])
def test_a_row_with_other_cells_than_the_header_is_an_error_and_not_cut(row, tmp_path):
    path = tmp_path / "docs.csv"
    path.write_text(f"id,text\n{row}\n\n2,whales\n", encoding="utf-8")
    torn, good = document_lines(path)
    expected = f"the row has {len(row.split(','))} cells; expected 2, as in the header; put a text"
    with pytest.raises(LineError, match=expected):
        parse_line(torn, {}, as_question)
    assert parse_line(good, {}, as_question).text == "whales"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt"])
def test_other_encodings_of_unicode_are_read(tmp_path, name, encoding):
    path = tmp_path / name
    written = {"a.csv": "text\n\u00f6l\n", "a.jsonl": '{"text": "\u00f6l"}\n', "a.txt": "\u00f6l\n"}
    path.write_bytes(written[name].encode(encoding))
    check_source(path)
    (line,) = document_lines(path)
    assert parse_line(line.removeprefix(b"\xef\xbb\xbf"), {}, as_question).text == "\u00f6l"
