"""Names of labels as sequences of words."""

import numpy as np
import pytest

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.lexical.terms import LabelTerms, names_of
from longtail.models.lexical.words import NameWords


def terms_of(*labels: Label) -> tuple[LabelTerms, NameWords]:
    words = NameWords.of_names(name for label in labels for name in names_of(label))
    return LabelTerms.of(LabelCatalogue(labels), words), words


def spelt(terms: LabelTerms, words: NameWords) -> list[list[str]]:
    """The words of each term."""
    numbers = np.split(terms.words, terms.starts[1:-1])
    return [[words.words[number] for number in own] for own in numbers]


@pytest.mark.parametrize(
    ("name", "others", "right"),
    [
        ("fish", (), ["fish"]),
        ("seal (animal)", (), ["seal (animal)", "seal"]),
        ("seal [animal] skin", (), ["seal [animal] skin", "seal skin"]),
        ("(un)known", (), ["(un)known", "known"]),
        ("fish", ("fishes", "", "fish"), ["fish", "fishes"]),
        ("(all)", ("all",), ["(all)", "all"]),
    ],
)
def test_a_label_has_its_name_that_without_brackets_and_others(name, others, right):
    assert list(names_of(Label("L", name, alternative_names=others))) == right


@pytest.mark.parametrize(
    ("code", "is_one"),
    [
        ("N53.77", True), ("E11", True), ("S72.001A", True), ("h2o", True), ("Ä12", True),
        ("E1", False), ("10023", False), ("53.77", False), ("sales", False), ("A-12", False),
        ("http://id/n53", False), ("A1.", False), ("c_1234", False), ("", False),
    ],
)  # fmt: skip
def test_an_id_or_notation_that_is_no_word_and_no_number_is_a_code(code, is_one):
    for label in (Label(code, "fish"), Label("L", "fish", notation=code)):
        assert names_of(label) == {"fish": False} | ({code: True} if is_one else {})
    assert names_of(Label("L", "N53.77", notation="N53.77")) == {"N53.77": False}


def test_terms_stand_in_the_order_of_their_labels():
    terms, words = terms_of(
        Label("A", "Seal (animal)", alternative_names=("sea dog", "???")),
        Label("B", "..."),
        Label("C", "dogs"),
    )
    assert terms.names == ("Seal (animal)", "Seal", "sea dog", "dogs")
    assert spelt(terms, words) == [["seal", "animal"], ["seal"], ["sea", "dog"], ["dog"]]
    assert terms.labels.tolist() == [0, 0, 0, 2]
    assert terms.starts_of_labels.tolist() == [0, 3, 3, 4]
    assert terms.is_preferred.tolist() == [True, False, False, True]


def test_labels_with_the_same_words_are_counted_in_any_order_but_not_the_label_itself():
    terms, _ = terms_of(
        Label("A", "river law", alternative_names=("law river", "law")),
        Label("B", "laws of a river"),
        Label("C", "Law River"),
        Label("D", "law law"),
    )
    assert terms.names == (
        "river law",
        "law river",
        "law",
        "laws of a river",
        "Law River",
        "law law",
    )
    assert terms.num_alike.tolist() == [1, 1, 1, 0, 1, 1]
