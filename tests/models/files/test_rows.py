"""The rows of CSV files as Excel writes them."""

import pytest

from longtail.models.errors import DataError
from longtail.models.files.bad_lines import BadLine
from longtail.models.files.rows import csv_rows, header_of


def test_what_excel_puts_around_a_table_is_passed_over(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('sep=;\nText;Labels;;\n"Fish\nand cod";fish;;\nOil;oil;;\nbad;row\n;;;\n')
    columns = (("text",), ("labels",))
    assert header_of(path, columns).names == ("text", "labels", "", "")
    rows = list(csv_rows(path, columns))
    assert [(number, row["text"], row["labels"]) for number, row in rows[:2]] == [
        (3, "Fish\nand cod", "fish"),
        (5, "Oil", "oil"),
    ]
    assert rows[2:] == [(6, BadLine(6, "2 cells; expected 4, as in the header"))]


def test_a_quote_that_is_never_closed_does_not_swallow_the_rest(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('text,labels\nFish,fish\n"Oil,oil\n' + "Cod,cod\n" * 50)
    with pytest.raises(DataError, match="line 3: a quote is opened here and never closed"):
        list(csv_rows(path, (("text",), ("labels",))))
