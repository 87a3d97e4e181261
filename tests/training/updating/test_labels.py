"""Verdicts on labels: the last one counts, and proposed labels become the same ones every time."""

from __future__ import annotations

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.training.updating.feedback import Entry, ProposedLabel
from longtail.training.updating.labels import read_labels
from longtail.training.updating.texts import TextFeedback

CATALOGUE = LabelCatalogue(
    [Label("1", "fish"), Label("2", "oil"), Label("3", "oil"), Label("4", "Olive  Duty")]
)


def entry(right=(), wrong=(), proposed=()) -> Entry:
    return Entry("text", "", "", tuple(right), tuple(wrong), tuple(proposed))


def test_of_several_verdicts_on_a_label_the_last_one_counts() -> None:
    text = TextFeedback("text", "d", [entry(right="12"), entry(wrong="1"), entry(wrong="2")])
    text.entries.append(entry(right="2"))
    (found,) = read_labels([text], CATALOGUE).texts
    assert (found.right, found.wrong) == ({1}, {0})


def test_a_proposed_label_gets_its_id_that_of_its_name_or_a_new_one() -> None:
    proposed = [
        ProposedLabel("olive duty"),  # by its name label 4
        ProposedLabel("oil"),  # two labels have that name
        ProposedLabel("Cork", "c9"),
        ProposedLabel("cork"),
        ProposedLabel("Sea  Salt"),
        ProposedLabel("sea salt"),
        ProposedLabel("whatever", "1"),
    ]
    said = read_labels([TextFeedback("text", "d", [entry(proposed=proposed)])], CATALOGUE)
    new = [(label.id, label.name) for label in said.catalogue][len(CATALOGUE) :]
    assert new == [("new:oil", "oil"), ("c9", "Cork"), ("new:sea-salt", "Sea  Salt")]
    assert said.num_new == 3
    assert said.texts[0].right == {0, 3, 4, 5, 6}

    again = read_labels([TextFeedback("text", "d", [entry(proposed=proposed)])], said.catalogue)
    assert again.num_new == 0 and again.texts == said.texts


def test_ids_of_no_label_are_counted_and_a_text_of_only_them_is_left_out() -> None:
    texts = [
        TextFeedback("one", "a", [entry(right=["1", "x"])]),
        TextFeedback("two", "b", [entry(right=["y"])]),
    ]
    said = read_labels(texts, CATALOGUE)
    assert said.unknown == ("x", "y")
    assert [text.text for text in said.texts] == ["one"]


def test_what_is_said_of_a_retired_label_is_said_of_the_one_that_replaces_it() -> None:
    retired = [
        Label("old", "oil duty", is_retired=True, replaced_by=("older",)),
        Label("older", "duty", is_retired=True, replaced_by=("1",)),
        Label("split", "s", is_retired=True, replaced_by=("1", "2")),
        Label("gone", "g", is_retired=True),
        Label("circle", "c", is_retired=True, replaced_by=("circle",)),
    ]
    text = TextFeedback("text", "d", [entry(right=["old", "split", "gone", "circle"])])
    found = read_labels([text], LabelCatalogue([*CATALOGUE, *retired]))
    assert [each.right for each in found.texts] == [frozenset({0})]
    assert found.unknown == ("circle", "gone", "split")


def test_a_proposed_name_that_only_a_retired_label_has_becomes_a_new_label() -> None:
    retired = Label("old", "sea", is_retired=True)
    text = TextFeedback("text", "d", [entry(proposed=[ProposedLabel("Sea")])])
    found = read_labels([text], LabelCatalogue([*CATALOGUE, retired]))
    assert (found.num_new, found.catalogue[len(found.catalogue) - 1].id) == (1, "new:sea")
