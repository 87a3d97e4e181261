"""A corpus with feedback applied, beside sets that are changed one by one."""

import json
from pathlib import Path

import numpy as np

from longtail.ext.learn.documents import change_documents
from longtail.ext.learn.verdicts import TextVerdicts, Verdicts
from longtail.training.data.dataset import Dataset, open_dataset

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
