"""Files that say what replaces labels."""

import pytest

from longtail.ext.editions.difference import read_merges
from longtail.models.errors import DataError


def test_a_label_is_replaced_by_one_or_several(tmp_path):
    path = tmp_path / "merges.csv"
    path.write_text("id,replaced_by\na,b\nc,d; e\nc,e;f\n", encoding="utf-8")
    assert read_merges(path) == {"a": ("b",), "c": ("d", "e", "f")}


def test_lines_that_say_no_replacement_are_listed_together(tmp_path):
    path = tmp_path / "merges.csv"
    path.write_text("id,replaced_by\na,b\n,b\nc,\nd,e;d\n", encoding="utf-8")
    with pytest.raises(DataError, match="3 lines") as caught:
        read_merges(path)
    assert "line 3" in str(caught.value) and "'d' is to replace itself" in str(caught.value)
