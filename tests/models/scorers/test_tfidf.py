"""Tf-idf rows, compared with those that scikit-learn makes."""

import json
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize

from longtail.models.errors import BundleCorruptError
from longtail.models.explain import spans_of
from longtail.models.scorers.character_terms import unspaced_share
from longtail.models.scorers.markup import first_markup, placed_without_markup, without_markup
from longtail.models.scorers.tfidf import (
    TITLE,
    TOKEN_PATTERN,
    TfidfModel,
    terms_of,
    title_end,
    tokenize,
)
from longtail.models.scorers.word_forms import (
    STEMMERS,
    WordForms,
    languages_of,
    singular,
    without_accents,
)

TOKENS = ("oil", "olive", "olive oil", "trade", "zebra")
IDF = np.array([1.5, 2.25, 3.1, 1.0, 7.7], dtype=np.float32)
MANY_SIGNS = "".join(map(chr, range(0x2010, 0x2028)))
WORDS = st.sampled_from([*TOKENS, "unknown", "Olive", "a"])
TEXTS = st.lists(st.lists(WORDS, max_size=30).map(" ".join), max_size=8)


@given(TEXTS)
def test_rows_are_to_the_bit_those_of_scikit_learn(texts):
    model = TfidfModel(TOKENS, IDF, max_ngram=2)
    rows = model.transform(iter(texts))
    assert rows.shape == (len(texts), len(TOKENS))
    columns = {token: column for column, token in enumerate(TOKENS)}
    expected = np.zeros((0, len(TOKENS)), dtype=np.float32)
    if texts:
        counter = CountVectorizer(analyzer=partial(terms_of, max_ngram=2), vocabulary=columns)
        counts = csr_array(counter.transform(texts), dtype=np.float32)
        counts.data = (1 + np.log(counts.data)) * IDF[counts.indices]
        expected = normalize(counts).toarray()
    assert rows.dtype == np.float32
    assert rows.has_sorted_indices
    assert np.array_equal(rows.toarray().view(np.int32), expected.view(np.int32))


TITLE_WORDS = ("oil", "zebra")
TITLED = TfidfModel(
    (*TOKENS, *(TITLE + word for word in TITLE_WORDS)),
    np.append(IDF, np.array([2.5, 1.25], dtype=np.float32)),
    max_ngram=2,
    title_weight=0.5,
)
LINES = st.lists(TEXTS.map(" ".join), max_size=3).map("\n".join)


@given(st.lists(LINES, max_size=6))
def test_a_title_has_a_row_of_its_own_beside_that_of_the_whole_text(texts):
    plain = TfidfModel(TOKENS, IDF, max_ngram=2)
    of_title = TfidfModel(TITLE_WORDS, TITLED.idf[len(TOKENS) :])
    rows = TITLED.transform(texts)
    assert rows.has_sorted_indices
    for row, text in zip(rows.toarray(), texts, strict=True):
        whole = plain.transform([text]).toarray()[0]
        first, _, rest = text.lstrip().partition("\n")
        if not rest.strip():
            assert np.array_equal(row, np.append(whole, [0, 0]))  # to the bit
            continue
        expected = np.append(whole, 0.5 * of_title.transform([first]).toarray()[0])
        length = np.linalg.norm(expected)
        np.testing.assert_allclose(row, expected / (length or 1), rtol=1e-6, atol=1e-7)


def test_what_a_title_is():
    assert title_end("Oil\nof olives") == 3
    assert title_end("\n  Oil\nof olives") == 6
    assert title_end("") == title_end("one line") == title_end("one line\n \n") == 0


def test_words_of_titles_stand_where_the_title_has_them():
    text = "Olive OIL\nand oil"
    found = spans_of(text, TITLED, {"oil", "title: oil"})
    assert found == {"oil": [(6, 9), (14, 17)], "title: oil": [(6, 9)]}


def test_a_model_with_words_of_titles_is_read_as_it_was_written():
    again = TfidfModel.from_json(TITLED.to_json(), TITLED.idf)
    text = "olive oil\nzebra"
    assert again.to_json() == TITLED.to_json()
    assert np.array_equal(again.transform([text]).toarray(), TITLED.transform([text]).toarray())


def test_words_of_titles_that_are_not_the_last_tokens_are_refused():
    written = json.loads(TITLED.to_json())
    written["tokens"].reverse()
    with pytest.raises(BundleCorruptError, match="words of titles are not the last tokens"):
        TfidfModel.from_json(json.dumps(written), TITLED.idf)


@given(st.text() | st.text(alphabet="aé水_7-.\n\0\x1e\u0301\u2013\u201c S", max_size=30))
@example(f"é_{MANY_SIGNS}水_7")
def test_words_are_those_of_the_pattern(text):
    assert tokenize(text) == TOKEN_PATTERN.findall(text.lower())


def terms(text: str) -> list[str]:
    return terms_of(text, 1, "char")


def test_terms_are_n_grams_within_a_run_of_one_script():
    assert terms("新手机 X9") == ["新", "手", "机", "新手", "手机", "新手机", "x", "9", "x9"]
    assert terms("手机iOS") == ["手", "机", "手机", "i", "o", "s", "io", "os", "ios"]


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("这是中文。", 1.0), ("これはテストです", 1.0), ("ภาษาไทย", 1.0), ("plain words, 42", 0.0),
        ("한국어 단어", 0.0), ("中文ab", 0.5), ("?! 42", 0.0), ("", 0.0),
    ],
)  # fmt: skip
def test_share_of_letters_in_scripts_without_spaces(text, share):
    assert unspaced_share([text]) == share


@given(st.text())
def test_spans_are_of_the_characters_as_they_came(text):
    found = terms(text)
    model = TfidfModel(found or ["x"], np.ones(len(found) or 1, dtype=np.float32), analyzer="char")
    spans = spans_of(text, model, set(found))
    assert spans.keys() == set(found)
    for token, places in spans.items():
        for start, stop in places:
            assert 0 <= start < stop <= len(text)
            assert token in text[start:stop].lower()


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


@pytest.mark.parametrize(
    ("word", "right"),
    [
        ("policies", "policy"),
        ("fishes", "fish"),
        ("churches", "church"),
        ("taxes", "tax"),
        ("rivers", "river"),
        ("movies", "movy"),  # as in texts: nobody reads it
        ("virus", "virus"),
        ("glass", "glass"),
        ("gas", "gas"),  # shorter than any plural
        ("fish", "fish"),
        ("", ""),
    ],
)
def test_plurals_lose_their_ending(word, right):
    assert singular(word) == right


@pytest.mark.parametrize(
    ("word", "right"),
    [
        ("café", "cafe"), ("cafe\u0301", "cafe"), ("ﬁsh", "fish"), ("ångström", "angstrom"),
        ("λόγος", "λογος"), ("straße", "straße"), ("plain", "plain"),
    ],
)  # fmt: skip
def test_accents_are_taken_off(word, right):
    assert without_accents(word) == right


@pytest.mark.parametrize(
    ("languages", "words"),
    [
        (["de"], "Gießkanne Gießkannen giesskanne"),
        (["de"], "wasserdicht wasserdichter wasserdichte"), (["de"], "Häuser Haus Haeuser"),
        (["de", "en"], "Glas Gläser"), (["en", "de"], "rot rote roter"),
        (["en", "de"], "study studies"), (["fr"], "imperméable imperméables"),
        (["nl"], "waterdicht waterdichte"), (["fi"], "talo talossa taloissa"),
        ([], "café cafés cafe\u0301"),
    ],
)  # fmt: skip
def test_inflected_words_have_one_form(languages, words):
    forms = WordForms(languages)
    assert len({forms.of(word) for word in words.lower().split()}) == 1


def test_without_a_language_to_stem_words_stay_but_for_english_plurals():
    assert WordForms().of("wasserdichter") == WordForms(["en"]).of("wasserdichter")
    assert WordForms(["en"]).of("wasserdichter") == "wasserdichter"


def test_every_language_has_a_stemmer_and_others_are_refused():
    assert WordForms(languages_of(list(STEMMERS))).has_stems
    with pytest.raises(ValueError, match="xx"):
        languages_of(["de", "xx"])


def test_a_run_of_letters_too_long_for_a_compound_is_not_taken_apart():
    known = {"wand": 0}.get
    forms = WordForms(["de"])
    assert forms.parts("wandwand", known) == (0, 0)
    assert forms.parts("wand" * 100, known) == ()
    assert WordForms(["fr"]).parts("wandwand", known) == ()
