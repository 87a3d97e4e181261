"""Tables of benchmarks are printed and kept, and a record is written where one is asked for."""

from __future__ import annotations

import json

import numpy as np
import pytest
import recording


def test_a_table_is_printed_as_it_grows_and_keeps_numbers_in_full(capsys):
    table = recording.Table({"what": "", "labels": ",", "ms": ".1f"})
    table.add("one", 1200, np.float64(2.345))
    table.add("none", 3, None)
    assert capsys.readouterr().out.splitlines() == [
        "",
        "| what | labels | ms |",
        "|---|---:|---:|",
        "| one | 1,200 | 2.3 |",
        "| none | 3 | - |",
    ]
    assert table.to_json() == {
        "columns": [{"name": "what"}, {"name": "labels"}, {"name": "ms", "digits": 1}],
        "rows": [["one", 1200, 2.345], ["none", 3, None]],
    }


def test_a_row_of_another_width_is_refused():
    table = recording.Table({"what": ""})
    with pytest.raises(ValueError, match="argument"):
        table.add("one", 2)


def test_a_record_is_written_where_one_is_asked_for(tmp_path, capsys):
    path = tmp_path / "new" / "x.json"
    recording.keep(None, {"x": 1})
    recording.keep(path, {"table": recording.Table({"a": ""}), "x": 1}, seeds=[3])
    record = json.loads(path.read_text())
    assert record["seeds"] == [3]
    assert record["figures"] == {"table": {"columns": [{"name": "a"}], "rows": []}, "x": 1}
