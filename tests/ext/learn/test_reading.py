"""Verdicts: gathered by text, texts found in the corpus, labels looked up or made."""

import json
from pathlib import Path

import numpy as np
import pytest

from longtail.ext.learn.documents import change_documents
from longtail.ext.learn.verdicts import TextVerdicts, Verdicts, read_verdicts
from longtail.models.feedback import Entry, ProposedLabel, sha256_of
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.training.data.dataset import Dataset, open_dataset

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


NUM_LABELS = 8


def corpus_of(folder: Path, train: list[set[int]]) -> Dataset:
    """A corpus whose texts are "old 0", "old 1" and so on."""
    folder.mkdir()
    lines = [json.dumps({"id": str(x), "name": f"label {x}"}) for x in range(NUM_LABELS)]
    (folder / "labels.jsonl").write_text("\n".join(lines))
    rows = [
        {"text": f"old {row}", "labels": [str(x) for x in sorted(labels)]}
        for row, labels in enumerate(train)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return open_dataset(folder)


def said(text: str, right=(), wrong=()) -> TextVerdicts:
    return TextVerdicts(text, f"id of {text}", frozenset(right), frozenset(wrong))


def change(corpus: Dataset, texts):
    return change_documents(corpus, Verdicts(corpus.catalogue, 0, texts, (), 0, 0))


def labels_of(corpus: Dataset) -> list[set[int]]:
    matrix = corpus.split("train").scan().labels
    rows = [set(matrix[[row]].indices.tolist()) for row in range(matrix.shape[0])]
    assert rows == [set(document.labels) for document in corpus.split("train")]
    return rows


def test_documents_are_corrected_and_added_as_sets_of_labels_are(tmp_path):
    rng = np.random.default_rng(0)
    expected = [set(np.flatnonzero(rng.random(NUM_LABELS) < 0.3).tolist()) for _ in range(40)]
    corpus = corpus_of(tmp_path / "corpus", expected)
    texts = []
    for number in range(62):
        verdicts, split = rng.permutation(NUM_LABELS)[:4].tolist(), int(rng.integers(1, 4))
        text = f" old  {number}\n" if number < 3 else f"text {number}"
        texts.append(said(text, verdicts[:split], verdicts[split:]))
    texts.append(said("text 62", wrong=[2]))
    changed = change(corpus, texts)
    for row, text in enumerate(texts[:3]):
        expected[row] = (expected[row] | text.right) - text.wrong
    expected += [set(text.right) for text in texts[3:]]
    assert labels_of(changed.corpus) == expected and changed.num_new == 60
    split = changed.corpus.split("train")
    assert [*split.texts()] == [f"old {x}" for x in range(40)] + [x.text for x in texts[3:]]
    assert [x.id for x in split][39:41] == ["40", "id of text 3"]
    counts = changed.corpus.catalogue.training_counts.tolist()
    assert counts == [sum(x in y for y in expected) for x in range(NUM_LABELS)]
    assert changed.corpus.fingerprint == corpus.fingerprint
    assert split.scan().lengths.tolist() == [len(text) for text in split.texts()]


def test_some_of_the_documents_are_a_part_that_can_be_changed_again(tmp_path):
    corpus = change(corpus_of(tmp_path / "corpus", [{1}, {2}, {3}]), [said("new", [4])]).corpus
    is_in = np.array([True, False, True, True])
    part = corpus.split("train").part(is_in)
    assert [x.text for x in part] == ["old 0", "old 2", "new"]
    again = corpus.with_splits({"train": part})
    more = change(again, [said("newer", [5]), said("new", [6], [4])]).corpus
    assert [x.text for x in more.split("train")] == ["old 0", "old 2", "new", "newer"]
    assert labels_of(more) == [{1}, {3}, {6}, {5}]


def test_known_verdicts_change_nothing_and_all_documents_of_a_text_are_corrected(tmp_path):
    corpus = corpus_of(tmp_path / "corpus", [{1}, {2, 3}])
    with (corpus.folder / "train.jsonl").open("a") as file:
        file.write('{"text": "old 1", "labels": ["5"]}\n')
    corpus = open_dataset(corpus.folder)
    changed = change(corpus, [said("old 0", [1], [4])])
    assert (changed.num_known, changed.num_new, changed.num_corrected) == (1, 0, 0)
    changed = change(corpus, [said("old 1", [1], [2])])
    assert labels_of(changed.corpus) == [{1}, {1, 3}, {1, 5}] and changed.num_corrected == 2
