"""The form in which words are compared, by language."""

import pytest

from longtail.models.scorers.word_forms import (
    STEMMERS,
    WordForms,
    languages_of,
    singular,
    without_accents,
)


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
        ("café", "cafe"),
        ("cafe\u0301", "cafe"),
        ("ﬁsh", "fish"),
        ("ångström", "angstrom"),
        ("λόγος", "λογος"),
        ("straße", "straße"),
        ("plain", "plain"),
    ],
)
def test_accents_are_taken_off(word, right):
    assert without_accents(word) == right


@pytest.mark.parametrize(
    ("languages", "words"),
    [
        (["de"], "Gießkanne Gießkannen giesskanne"),
        (["de"], "wasserdicht wasserdichter wasserdichte"),
        (["de"], "Häuser Haus Haeuser"),
        (["de", "en"], "Glas Gläser"),
        (["en", "de"], "rot rote roter"),
        (["en", "de"], "study studies"),
        (["fr"], "imperméable imperméables"),
        (["nl"], "waterdicht waterdichte"),
        (["fi"], "talo talossa taloissa"),
        ([], "café cafés cafe\u0301"),
    ],
)
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
