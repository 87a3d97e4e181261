"""CSV files as `longtail predict` reads them: delimiters and columns are recognised and told."""

import pytest

from longtail.service.offline.documents import (
    DocumentColumns,
    as_question,
    columns_as_trained,
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
    columns = columns_as_trained(path, DocumentColumns(), trained)
    lines = document_lines(path, columns=columns)
    assert [parse_line(line, {}, as_question).text for line in lines] == expected


def test_a_file_without_titles_is_read_as_ever_by_a_model_of_texts_alone(tmp_path):
    path = tmp_path / "docs.csv"
    path.write_text("id,text\n1,whales\n", encoding="utf-8")
    assert columns_as_trained(path, DocumentColumns(), ("text",)) == DocumentColumns()
