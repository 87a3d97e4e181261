"""Tables of notebooks hold text, and data frames need pandas."""

from __future__ import annotations

import sys

import pytest

from longtail.models.errors import ConfigError
from longtail.models.tables import frame_of, html_table


def test_whatever_stands_in_a_cell_is_text():
    found = html_table(("a<", "b"), [("<script>", None), (0.123456, 7)], caption="&")
    assert found == (
        "<table><caption>&amp;</caption><thead><tr><th>a&lt;</th><th>b</th></tr></thead><tbody>"
        "<tr><td>&lt;script&gt;</td><td></td></tr><tr><td>0.1235</td><td>7</td></tr></tbody></table>"
    )


def test_without_pandas_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match=r"data frame needs .* pip install .longtail\[pandas"):
        frame_of({"a": [1]})
