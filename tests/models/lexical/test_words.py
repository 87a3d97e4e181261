"""Words in the form in which names and texts are compared."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.models.lexical import words as module
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
PIECES = re.compile(
    rf"(?:(?![{UNSPACED_SCRIPTS}])(?:[^\W_]|[{MARKS}]))+|[{UNSPACED_SCRIPTS}]|(?P<end>{END})"
)


@given(st.text() | st.text(alphabet="aé12水ก。\u0301नी-.!\n\0\x1e\u2028 S_7", max_size=30))
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
