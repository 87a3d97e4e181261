"""Verdicts: gathered by text, texts found in the corpus, labels looked up or made."""

import json

import pytest

from longtail.ext.learn.verdicts import Verdicts, read_verdicts
from longtail.models.feedback import Entry, ProposedLabel, sha256_of
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.training.data.dataset import open_dataset

CATALOGUE = LabelCatalogue(
    [Label("1", "fish"), Label("2", "oil"), Label("3", "oil"), Label("4", "Olive  Duty")]
)


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "labels.jsonl").write_text('{"id": "1", "name": "fish"}\n')
    for name, ids in {"train": "abc", "dev": "cd", "test": "e"}.items():
        lines = [f'{{"id": "{x}", "text": "{name} {x}", "labels": ["1"]}}\n' for x in ids]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return open_dataset(folder)


@pytest.fixture
def read(corpus):
    """Reads entries of one text, unless they say otherwise."""

    def read_(*entries: Entry, catalogue: LabelCatalogue = CATALOGUE) -> Verdicts:
        return read_verdicts(entries, catalogue, corpus)

    return read_


def entry(right=(), wrong=(), proposed=(), text="text", sha256="", name="") -> Entry:
    return Entry(
        text=text, text_sha256=sha256, document_id=name,
        accepted=tuple(right), rejected=tuple(wrong), proposed=tuple(proposed),
    )  # fmt: skip


def test_entries_of_one_text_are_brought_together_in_their_order(read):
    found = read(
        entry("1", text="new"),
        entry("1", text="", sha256=sha256_of("train a")),
        entry("2", text="new", name="n"),
        entry("3", text="", name="a"),
    )
    assert [(x.text, x.right) for x in found.texts] == [("new", {0, 1}), ("train a", {0, 2})]
    assert (found.num_left_out, found.num_unresolved) == (0, 0)
    assert found.texts[0].document_id == f"sha256:{sha256_of('new')[:16]}"


def test_measured_texts_and_those_that_nobody_has_are_left_out(read):
    found = read(
        entry("1", text="dev  d"),  # white space does not matter
        entry("1", text="test e"),
        entry("1", text="", name="e"),  # the text of the second
        entry("1", text="", name="c"),  # two documents have this id
        entry("1", text="", sha256="0" * 64),
    )
    assert (found.texts, found.num_left_out, found.num_unresolved) == ([], 2, 2)


def test_the_last_of_several_verdicts_on_a_label_counts(read):
    (found,) = read(entry("12"), entry(wrong="1"), entry(wrong="2"), entry("2")).texts
    assert (found.right, found.wrong) == ({1}, {0})


def test_a_proposed_label_gets_its_id_that_of_its_name_or_a_new_one(read):
    proposed = [
        ProposedLabel("olive duty"),  # by its name label 4
        ProposedLabel("oil"),  # two labels have that name
        ProposedLabel("Cork", "c9"),
        ProposedLabel("cork"),
        ProposedLabel("Sea  Salt"),
        ProposedLabel("sea salt"),
        ProposedLabel("whatever", "1"),
    ]
    found = read(entry(proposed=proposed))
    new = [(label.id, label.name) for label in found.catalogue][len(CATALOGUE) :]
    assert new == [("new:oil", "oil"), ("c9", "Cork"), ("new:sea-salt", "Sea  Salt")]
    assert found.num_new == 3 and found.texts[0].right == {0, 3, 4, 5, 6}
    again = read(entry(proposed=proposed), catalogue=found.catalogue)
    assert again.num_new == 0 and again.texts == found.texts


def test_a_retired_label_counts_as_its_replacement_and_its_name_is_free(read):
    retired = [
        Label("old", "oil duty", is_retired=True, replaced_by=("older",)),
        Label("older", "duty", is_retired=True, replaced_by=("1",)),
        Label("split", "s", is_retired=True, replaced_by=("1", "2")),
        Label("gone", "Sea", is_retired=True),
        Label("circle", "c", is_retired=True, replaced_by=("circle",)),
    ]
    catalogue = LabelCatalogue([*CATALOGUE, *retired])
    found = read(entry(["old", "split", "gone", "circle"]), catalogue=catalogue)
    assert [each.right for each in found.texts] == [{0}]
    assert found.unknown == ("circle", "gone", "split")
    found = read(entry(proposed=[ProposedLabel("sea")]), catalogue=catalogue)
    assert (found.num_new, found.catalogue[len(catalogue)].id) == (1, "new:sea")


def test_numbers_of_lines_are_no_ids(tmp_path):
    """Feedback that has the caller's own id alone is about no line of a corpus without ids."""
    lines = [json.dumps({"text": f"line {x}", "labels": ["fish"]}) for x in range(1, 4)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    found = read_verdicts([entry("1", text="", name="2")], CATALOGUE, open_dataset(tmp_path))
    assert (found.texts, found.num_unresolved) == ([], 1)
