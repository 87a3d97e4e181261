"""The rows of CSV files as Excel writes them."""

import pytest

from longtail.models.errors import DataError
from longtail.models.files.rows import CsvTable, find_header


def test_what_excel_puts_around_a_table_is_passed_over(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('sep=;\nText;Labels;;\n"Fish\nand cod";fish;;\nOil;oil;;\nbad;row\n;;;\n')
    columns = (("text",), ("labels",))
    table = CsvTable(path, columns)
    assert table.header.names == ("text", "labels", "", "")
    rows = list(table.rows())
    assert [(number, row["text"], row["labels"]) for number, row in rows[:2]] == [
        (3, "Fish\nand cod", "fish"),
        (5, "Oil", "oil"),
    ]
    (number, bad), *others = rows[2:]
    assert (number, others) == (6, [])
    assert bad.reason.startswith("2 cells; expected 4, as in the header; put a text with")


def test_a_quote_that_is_never_closed_does_not_swallow_the_rest(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('text,labels\nFish,fish\n"Oil,oil\n' + "Cod,cod\n" * 50)
    with pytest.raises(DataError, match="line 3: a quote is opened here and never closed"):
        list(CsvTable(path, (("text",), ("labels",))).rows())


COLUMNS = (("labels",), ("text", "title"))


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_that_gives_the_columns_is_taken(delimiter):
    header = find_header([f"text{delimiter}labels\n", "a;b,c\td,e"], COLUMNS)
    assert (header.delimiter, header.names) == (delimiter, ("text", "labels"))


@pytest.mark.parametrize("first", ["Text,TEXT,labels\n", "text,TEXT,labels\n", "name,labels\n"])
def test_columns_that_are_missing_or_twice_are_refused(first):
    with pytest.raises(DataError, match="expected 'labels', 'text' or 'title' among them, each"):
        find_header([first], COLUMNS)
