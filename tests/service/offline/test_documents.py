"""CSV files as `longtail predict` reads them: delimiters and columns are recognised and told."""

import pytest

from longtail.service.offline.documents import (
    as_question,
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
