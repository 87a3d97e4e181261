"""What is HTML and what only looks like it; where the characters of a cleaned text come from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.models.scorers.markup import first_markup, placed_without_markup, without_markup

PLAIN = [
    "a < b", "x<y>z", "if a<b and c>d", "<p and q>", "vector<a>", "List<Object>", "x <- y",
    "cp <data> <input>", "AT&T; R&D", "&notit; &copy 5 &#; &#x;", "<!-- open", "<script>open",
    "<tag>a</tag>",
]  # fmt: skip
MARKED = {
    "Gie&szlig;kanne &amp; &quot;Schlauch&quot;": 'Gießkanne & "Schlauch"',
    "&#223;&#xDF;": "ßß",
    "Gie&shy;ßkanne": "Gießkanne",
    "<p class='x'>Der <b>W</b>ort</p>": "\nDer Wort\n",
    "eins<br>zwei<BR/>drei<li>vier": "eins\nzwei\ndrei\nvier",
    '<a href="http://x.y/?a=1&amp;b">Link': "Link",
    "<!-- a <b> -->Text<script>if (a<b) x();</script><style>p{}</style>": " Text\n\n",
    "&lt;b&gt; &amp;lt;": "<b> &lt;",
}


@pytest.mark.parametrize("text", PLAIN)
def test_what_only_looks_like_html_stays(text):
    assert (without_markup(text), first_markup(text)) == (text, "")


@pytest.mark.parametrize("text", MARKED)
def test_tags_are_left_out_and_references_become_characters(text):
    assert without_markup(text) == MARKED[text]
    assert text.find(first_markup(text)) == min(x for x in map(text.find, "<&") if x >= 0)


@given(st.lists(st.sampled_from([*PLAIN, *MARKED, "<b>", "</b>", "&amp", ";", "-->", "wort "])))
def test_each_character_comes_from_its_source(parts):
    text = "".join(parts)
    cleaned, starts, stops = placed_without_markup(text)
    assert cleaned == without_markup(text)
    assert len(starts) == len(stops) == len(cleaned)
    assert all(starts[1:] >= starts[:-1]) and all(starts < stops)
    for character, start, stop in zip(cleaned, starts.tolist(), stops.tolist(), strict=True):
        assert stop > start + 1 or text[start] == character
