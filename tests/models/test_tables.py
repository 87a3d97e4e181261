"""Tables of notebooks hold text, and data frames need pandas."""

from longtail.models.results import html_table


def test_whatever_stands_in_a_cell_is_text():
    found = html_table(("a<", "b"), [("<script>", None), (0.123456, 7)], caption="&")
    assert found == (
        "<table><caption>&amp;</caption><thead><tr><th>a&lt;</th><th>b</th></tr></thead><tbody>"
        "<tr><td>&lt;script&gt;</td><td></td></tr><tr><td>0.1235</td><td>7</td></tr></tbody></table>"
    )
