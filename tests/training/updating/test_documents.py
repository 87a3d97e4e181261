"""Training documents before and after feedback, beside sets that are changed one by one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, vstack

from longtail.models.scorers.tfidf import TfidfModel
from longtail.training.configuration.sections import SparseConfig
from longtail.training.formats.hashed_parts import part_of
from longtail.training.updating import documents as module
from longtail.training.updating.documents import TrainingDocuments, change_documents
from longtail.training.updating.labels import SaidOfText

NUM_LABELS = 8


def random_rows(rng: np.random.Generator, num_rows: int) -> csr_array:
    values = rng.random((num_rows, 12)) * (rng.random((num_rows, 12)) < 0.4)
    values[:, 0] += 0.01  # no row without a word
    return csr_array(values.astype(np.float32))


def random_documents(rng: np.random.Generator, num_documents: int) -> TrainingDocuments:
    labels = csr_array((rng.random((num_documents, NUM_LABELS)) < 0.3).astype(np.float32))
    return TrainingDocuments(random_rows(rng, num_documents), labels)


def said(number: int, right=(), wrong=()) -> SaidOfText:
    return SaidOfText(f"text {number}", f"d{number}", frozenset(right), frozenset(wrong))


def labels_of(matrix: csr_array, row: int) -> set[int]:
    return set(matrix[[row]].indices.tolist())


def halved(features: csr_array) -> csr_array:
    rounded = csr_array(features, copy=True)
    rounded.data = rounded.data.astype(np.float16).astype(np.float32)
    return rounded


def test_documents_are_corrected_and_added_as_sets_of_labels_are(monkeypatch):
    monkeypatch.setattr(module, "LEAST_DOCUMENTS", 1)
    rng = np.random.default_rng(0)
    documents = random_documents(rng, 40)
    features = csr_array(vstack([documents.features[[3, 17, 30]], random_rows(rng, 60)]))
    remembered = TrainingDocuments(halved(documents.features), documents.labels)
    texts = [
        said(
            number,
            (verdicts := rng.permutation(NUM_LABELS)[:4].tolist())[: (split := rng.integers(1, 4))],
            verdicts[split:],
        )
        for number in range(62)
    ]
    texts.append(said(62, wrong=[2]))
    changed = change_documents(remembered, texts, features, has_dev=True)

    expected = [labels_of(documents.labels, row) for row in range(40)]
    touched: set[int] = set()
    for text, row in zip(texts, (3, 17, 30), strict=False):
        after = (expected[row] | text.right) - text.wrong
        touched |= expected[row] ^ after
        expected[row] = after
    dev = [text for text in texts[3:] if text.right and part_of(text.text) == "dev"]
    new = [text for text in texts[3:] if text not in dev]
    for text in new:
        touched |= text.right | text.wrong
        expected.append(set(text.right))
    assert changed.dev == dev and 0 < len(dev) < 20
    assert changed.num_new == len(new) == len(expected) - 40
    assert [labels_of(changed.after.labels, row) for row in range(len(expected))] == expected
    assert set(changed.touched.tolist()) == touched
    assert changed.texts[: len(new)] == new
    counts = [sum(label in each for each in expected) for label in range(NUM_LABELS)]
    assert changed.counts.tolist() == counts
    assert changed.after.features.shape[0] == len(expected)


def test_what_is_known_as_it_is_said_changes_nothing():
    documents = random_documents(np.random.default_rng(1), 20)
    labels = labels_of(documents.labels, 5)
    text = said(0, labels, set(range(NUM_LABELS)) - labels)
    changed = change_documents(documents, [text], documents.features[[5]], has_dev=False)
    assert (changed.num_known, changed.texts, changed.touched.tolist()) == (1, [], [])
    assert (changed.after.labels != changed.before.labels).nnz == 0


def test_all_documents_of_one_text_are_corrected():
    documents = random_documents(np.random.default_rng(2), 6)
    twice = TrainingDocuments(
        csr_array(vstack([documents.features, documents.features[[4]]], format="csr")),
        csr_array(vstack([documents.labels, documents.labels[[0]]], format="csr")),
    )
    text = said(0, [1], [0, 2, 3])
    changed = change_documents(twice, [text], documents.features[[4]], has_dev=False)
    assert changed.corrected.tolist() == [4, 6]
    assert labels_of(changed.after.labels, 4) == labels_of(changed.after.labels, 6)


def test_a_text_of_other_weights_or_without_known_words_is_no_document():
    documents = random_documents(np.random.default_rng(3), 10)
    other = csr_array(documents.features[[2]], copy=True)
    other.data[0] *= 1.1
    nothing = csr_array((1, 12), dtype=np.float32)
    found = documents.rows_of(csr_array(vstack([other, nothing, documents.features[[2]]])))
    assert [rows.tolist() for rows in found] == [[], [], [2]]


@pytest.mark.parametrize(("has_dev", "num_dev"), [(True, 1), (False, 0)])
def test_only_documents_of_frequent_labels_join_the_dev_split(has_dev, num_dev):
    number = next(x for x in range(99) if part_of(f"text {x}") == "dev")
    labels = np.zeros((module.LEAST_DOCUMENTS, NUM_LABELS), dtype=np.float32)
    labels[:, 0] = 1
    labels[1:, 1] = 1
    rng = np.random.default_rng(4)
    documents = TrainingDocuments(random_rows(rng, len(labels)), csr_array(labels))
    texts = [said(number, [0]), said(number, [0, 1])]
    changed = change_documents(documents, texts, random_rows(rng, 2), has_dev=has_dev)
    assert len(changed.dev) == num_dev and changed.num_new == 2 - num_dev


def test_unknown_words_are_those_that_a_vocabulary_of_the_new_texts_would_have():
    texts = ["the fish swims", "the fish eats zebras", "the bird eats zebras", "the unicorn"]
    new = [SaidOfText(text, "d", frozenset([0]), frozenset()) for text in texts]
    documents = random_documents(np.random.default_rng(5), 4)
    changed = change_documents(
        documents, new, random_rows(np.random.default_rng(6), 4), has_dev=False
    )
    tfidf = TfidfModel(["bird", "fish"], np.ones(2, dtype=np.float32))
    # "fish", "eats" and "zebras" are in 2 documents, "the" in all.
    assert changed.unknown_share(tfidf, SparseConfig()) == pytest.approx(2 / 3)
