"""Terms that a vocabulary lacks, on documents whose terms are known, and against brute force."""

from itertools import combinations

import pytest

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.training.lexical.gaps import GapFinder

LABELS = LabelCatalogue([
    Label(id="1", name="olive oil", alternative_names=("huile d'olive",)),
    Label(id="2", name="trade in fish products"),
    Label(id="3", name="trade"),
])  # fmt: skip
FILLERS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot")
"""So that no term is in every document."""


def documents(*texts):
    fillers = [(f"f{i}", f"{a} {b}. {b} {a}.") for i, (a, b) in enumerate(combinations(FILLERS, 2))]
    return lambda: [(f"d{i}", text) for i, text in enumerate(texts)] + fillers


def found(texts, least=3):
    gaps = GapFinder(LABELS, ["en"]).find(documents(*texts), least)
    return [gap for gap in gaps if gap.phrase.split()[0] not in FILLERS]


def test_a_term_of_many_documents_that_no_name_has_is_found_with_examples_and_near_labels():
    (gap,) = found(["The solar panel was sold; trade in the solar panel."] * 2
                   + ["Solar panels and olive oil."] * 2)  # fmt: skip
    assert (gap.phrase, gap.num_documents) == ("solar panel", 4)
    assert gap.examples == ["d0", "d1", "d2"] and gap.nearest == []


@pytest.mark.parametrize(
    "text", ["Olive oils!", "oil", "fish product", "cheap olive oil", "HUILE D'OLIVE", "of the and"]
)
def test_what_a_name_covers_is_none(text):
    assert found([text] * 5) == [] or ("cheap" in text and found([text] * 5)[0].phrase == "cheap")


def test_a_word_of_a_name_alone_does_not_cover_a_longer_phrase():
    (gap,) = found(["Trade marks."] * 4)
    assert (gap.phrase, gap.nearest) == ("trade mark", ["3", "2"])


def test_phrases_do_not_run_over_ends_of_sentences_or_function_words():
    assert {gap.phrase for gap in found(["Wind. Turbine of steel"] * 3)} == {
        "wind", "turbine", "steel",
    }  # fmt: skip


def test_rare_terms_and_parts_of_longer_ones_are_left_out():
    assert found(["solar panel"] * 2) == []
    assert [gap.phrase for gap in found(["solar panel"] * 4 + ["solar"] * 2)] == ["solar panel"]
    many = found(["solar panel"] * 3 + ["solar"] * 4)
    assert {gap.phrase: gap.num_documents for gap in many} == {"solar": 7, "solar panel": 3}


def test_counts_are_those_of_all_phrases(tiny_texts):
    """Frequent phrases are found from frequent parts: nothing is lost by that."""
    texts = [(str(i), x["text"]) for i, x in enumerate(tiny_texts["train"])]
    finder = GapFinder(LABELS, ["en"])
    by_hand = {}
    for name, text in texts:
        for size in (1, 2, 3):
            for words in set(finder._phrases(text, size)):
                by_hand.setdefault(words, set()).add(name)
    for name, words in finder._keyphrases(lambda: texts, 4):
        assert len(by_hand[words]) >= 4 and name in by_hand[words]
    kept = {words for _, words in finder._keyphrases(lambda: texts, 4)}
    assert any(len(words) == 3 for words in kept)
