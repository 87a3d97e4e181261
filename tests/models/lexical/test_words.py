"""Words in the form in which names and texts are compared."""

import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.lexical import words as module
from longtail.models.lexical.terms import LabelTerms, names_of
from longtail.models.lexical.words import END_OF_SENTENCE, SENTENCE_END, UNKNOWN, NameWords, pieces
from longtail.models.scorers.character_terms import MARKS, UNSPACED_SCRIPTS


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("Decision-making", ["decision", "making"]),
        ("O'Neill's", ["o", "neill", "s"]),
        ("IPv6 in 2024", ["ipv6", "in", "2024"]),
        (
            "Diagnosis:N53.77, not 12.77.",
            ["diagnosis", "n5377", "not", "12", "77", END_OF_SENTENCE],
        ),
        (
            "Why? No! So; end",
            ["why", END_OF_SENTENCE, "no", END_OF_SENTENCE, "so", END_OF_SENTENCE, "end"],
        ),
        ("2.5 and a.b", ["2", "5", "and", "a", "b"]),
        ("The U.S. law, e.g. tax", ["the", "u", "s", "law", "e", "g", "tax"]),
        ("Les É.U. et la mer.", ["les", "é", "u", "et", "la", "mer", END_OF_SENTENCE]),
        ("title\n\nnext", ["title", END_OF_SENTENCE, "next"]),
        ("水资源。Policy", ["水", "资", "源", END_OF_SENTENCE, "policy"]),
        ("नीति है", ["नीति", "है"]),
        ("...", [END_OF_SENTENCE]),
    ],
)
def test_texts_are_cut_into_words_and_ends_of_sentences(text, right):
    assert list(pieces(text)) == right


END = r"(?:(?<!\.\w)\.|[!?;\n])(?=\s|$)|[\u3002\uff01\uff1f]"
MANY_SIGNS = "".join(map(chr, range(0x2010, 0x2028)))
PIECES = re.compile(
    rf"(?:(?![{UNSPACED_SCRIPTS}])(?:[^\W_]|[{MARKS}]))+|[{UNSPACED_SCRIPTS}]|(?P<end>{END})"
)


@given(
    st.text() | st.text(alphabet="aé12水ก。\u0301नी-.!\n\0\x1e\u2028\u2013\u201c S_7", max_size=30)
)
@example(f"é_{MANY_SIGNS}水_7")
def test_pieces_are_those_of_one_expression(text):
    text = re.sub(r"([a-z][0-9]{1,3})\.(?=[0-9])", r"\1", text.lower())
    matches = PIECES.finditer(text)
    assert list(pieces(text)) == [END_OF_SENTENCE if m["end"] else m.group() for m in matches]


def test_texts_are_read_as_numbers():
    words = NameWords.of_names(["river policy", "law"])
    assert words.read("The Rivers. Policies!").tolist() == [
        UNKNOWN,
        2,
        SENTENCE_END,
        1,
        SENTENCE_END,
    ]
    assert words.read("").tolist() == []


def test_compounds_without_a_name_are_read_as_the_parts_that_have_one():
    words = NameWords.of_names(["Schuh", "Wasser", "Schutz"], ["de"])
    schuh, schutz, wasser = range(3)
    assert words.read("Wanderschuhe. Wasserschutz").tolist() == [
        UNKNOWN, SENTENCE_END, wasser, schutz,
    ]  # fmt: skip
    assert words.read("Schuhe Schutzwassers").tolist() == [schuh, schutz, wasser]


def test_what_is_kept_of_words_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "_MAX_KEPT_FORMS", 3)
    words = NameWords.of_names(["a b c d"])
    texts = ["a b c d", "x y z", "d c b a", "q"]
    found = [words.read(text).tolist() for text in texts]
    assert found == [[0, 1, 2, 3], [UNKNOWN] * 3, [3, 2, 1, 0], [UNKNOWN]]
    assert len(words._by_form) <= 3 + 4  # those of one text may go beyond


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
