"""The header of a CSV file: its delimiter and known columns are recognised, and that is told."""

import pytest

from longtail.models.errors import DataError
from longtail.models.files.csv_columns import find_header

COLUMNS = (("labels",), ("text", "title"))


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_that_gives_the_columns_is_taken(delimiter):
    header = find_header([f"text{delimiter}labels\n", "a;b,c\td,e"], COLUMNS)
    assert (header.delimiter, header.names) == (delimiter, ("text", "labels"))


@pytest.mark.parametrize("first", ["Text,TEXT,labels\n", "text,TEXT,labels\n", "name,labels\n"])
def test_columns_that_are_missing_or_twice_are_refused(first):
    with pytest.raises(DataError, match="expected 'labels', 'text' or 'title' among them, each"):
        find_header([first], COLUMNS)
