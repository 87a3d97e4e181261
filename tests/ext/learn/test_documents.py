"""Training documents with feedback applied, beside sets that are changed one by one."""

import json
from pathlib import Path

import numpy as np

from longtail.ext.learn import documents as module
from longtail.ext.learn.documents import change_documents, labels_of, write_dev_corpus
from longtail.ext.learn.verdicts import TextVerdicts, Verdicts, smallest_digests
from longtail.models.corpus.raw import part_of
from longtail.training.data.dataset import Dataset, open_dataset

NUM_LABELS = 8


def corpus_of(folder: Path, train: list[set[int]], dev: int = 0) -> Dataset:
    """A corpus whose texts are "old 0", "old 1" and so on."""
    folder.mkdir()
    lines = [json.dumps({"id": str(x), "name": f"label {x}"}) for x in range(NUM_LABELS)]
    (folder / "labels.jsonl").write_text("\n".join(lines))
    documents = [("train", "old", row, labels) for row, labels in enumerate(train)]
    documents += [("dev", "measured", row, {0}) for row in range(dev)]
    for split, word, row, labels in documents:
        with (folder / f"{split}.jsonl").open("a") as file:
            ids = [str(x) for x in sorted(labels)]
            file.write(json.dumps({"text": f"{word} {row}", "labels": ids}) + "\n")
    return open_dataset(folder)


def said(text: str, right=(), wrong=()) -> TextVerdicts:
    return TextVerdicts(text, "d", frozenset(right), frozenset(wrong))


def change(corpus: Dataset, texts, *, has_dev: bool = False, counts=None):
    catalogue = corpus.catalogue
    if counts is not None:
        catalogue = catalogue.replaced(training_count=counts)
    return change_documents(corpus, Verdicts(catalogue, 0, texts, (), 0, 0), has_dev=has_dev)


def test_documents_are_corrected_and_added_as_sets_of_labels_are(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LEAST_DOCUMENTS", 1)
    rng = np.random.default_rng(0)
    expected = [set(np.flatnonzero(rng.random(NUM_LABELS) < 0.3).tolist()) for _ in range(40)]
    corpus = corpus_of(tmp_path / "corpus", expected)
    texts = []
    for number in range(62):
        verdicts, split = rng.permutation(NUM_LABELS)[:4].tolist(), int(rng.integers(1, 4))
        text = f" old  {number}\n" if number < 3 else f"text {number}"
        texts.append(said(text, verdicts[:split], verdicts[split:]))
    texts.append(said("text 62", wrong=[2]))
    changed = change(corpus, texts, has_dev=True)

    touched: set[int] = set()
    for text, row in zip(texts, range(3), strict=False):
        after = (expected[row] | text.right) - text.wrong
        touched |= expected[row] ^ after
        expected[row] = after
    dev = [text for text in texts[3:] if text.right and part_of(text.text) == "dev"]
    new = [text for text in texts[3:] if text not in dev]
    for text in new:
        touched |= text.right | text.wrong
        expected.append(set(text.right))
    assert changed.dev == dev and 0 < len(dev) < 20 and changed.new == new
    assert [labels_of(changed.labels, row) for row in range(len(expected))] == expected
    assert set(changed.touched.tolist()) == touched
    assert changed.counts.tolist() == [sum(x in y for y in expected) for x in range(NUM_LABELS)]
    assert [*changed.texts()] == [f"old {x}" for x in range(40)] + [x.text for x in new]
    assert [text for _, text in changed.documents()] == [*changed.texts()]
    assert changed.labels.shape[0] == len(expected)


def test_known_verdicts_change_nothing_and_all_documents_of_a_text_are_corrected(tmp_path):
    corpus = corpus_of(tmp_path / "corpus", [{1}, {2, 3}])
    with (corpus.folder / "train.jsonl").open("a") as file:
        file.write('{"text": "old 1", "labels": ["5"]}\n')
    corpus = open_dataset(corpus.folder)
    changed = change(corpus, [said("old 0", [1], [4])])
    assert (changed.num_known, changed.new, changed.touched.tolist()) == (1, [], [])
    changed = change(corpus, [said("old 1", [1], [2])])
    assert [labels_of(changed.labels, row) for row in range(3)] == [{1}, {1, 3}, {1, 5}]
    assert changed.num_corrected == 2 and changed.touched.tolist() == [1, 2]


def test_labels_that_a_former_feedback_changed_are_fitted_again(tmp_path):
    corpus = corpus_of(tmp_path / "corpus", [{1}, {2}])
    counts = [0, 1, 5, *[0] * 5]
    assert change(corpus, [said("old 0", [1])], counts=counts).touched.tolist() == [2]
    retired = corpus.catalogue.replaced(is_retired=[x == 2 for x in range(NUM_LABELS)])
    verdicts = Verdicts(retired, 0, [said("old 0", [1])], (), 0, 0)
    assert not len(change_documents(corpus, verdicts, has_dev=False).touched)  # they keep rows


def test_the_dev_corpus_has_chosen_documents_and_those_of_the_feedback(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_DEV", 10)
    corpus = corpus_of(tmp_path / "corpus", [{0}] * 10, dev=30)
    text = next(f"text {x}" for x in range(99) if part_of(f"text {x}") == "dev")
    changed = change(corpus, [said(text, [0])], has_dev=True)
    dev = write_dev_corpus(corpus, corpus.catalogue, changed, tmp_path / "dev")
    texts = [*dev.split("dev").texts()]
    assert len(texts) == 11 and texts[-1] == text
    assert [label.id for label in dev.labels] == [label.id for label in corpus.labels]
    assert (tmp_path / "dev" / "dev.jsonl").stat().st_mode & 0o077 == 0
    turned = [*corpus.split("dev").texts()][::-1]
    chosen = {x for x, is_in in zip(turned, smallest_digests(turned, 10), strict=True) if is_in}
    assert chosen == {*texts[:-1]}  # in whatever order
    assert smallest_digests(turned, 99).all() and not len(smallest_digests([], 9))
