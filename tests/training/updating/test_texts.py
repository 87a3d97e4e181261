"""Texts of feedback: brought together, found in the corpus, left out where they are measured."""

from __future__ import annotations

import numpy as np
import pytest

from longtail.training.data.dataset import open_dataset
from longtail.training.updating.feedback import read_feedback, sha256_of
from longtail.training.updating.texts import dev_rows, gather_texts


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "labels.jsonl").write_text('{"id": "1", "name": "fish"}\n')
    for name, ids in {"train": "abc", "dev": "cd", "test": "e"}.items():
        lines = [f'{{"id": "{x}", "text": "{name} {x}", "labels": ["1"]}}\n' for x in ids]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return open_dataset(folder)


def test_entries_of_one_text_are_brought_together_in_their_order(write_feedback, corpus):
    path = write_feedback(
        {"text": "new", "accepted": ["1"]},
        {"text_sha256": sha256_of("train a"), "accepted": ["1"]},
        {"text": "new", "document_id": "n", "accepted": ["2"]},
        {"document_id": "a", "accepted": ["3"]},
    )
    found = gather_texts(read_feedback(path), corpus)
    assert [(text.text, [x.right for x in text.entries]) for text in found.texts] == [
        ("new", [("1",), ("2",)]),
        ("train a", [("1",), ("3",)]),
    ]
    assert (found.num_left_out, found.num_unresolved) == (0, 0)
    assert found.texts[0].document_id == f"sha256:{sha256_of('new')[:16]}"


def test_measured_texts_and_those_that_nobody_has_are_left_out(write_feedback, corpus):
    path = write_feedback(
        {"text": "dev d", "accepted": ["1"]},
        {"text": "test e", "accepted": ["1"]},
        {"document_id": "d", "accepted": ["1"]},  # the text of the first
        {"document_id": "c", "accepted": ["1"]},  # two documents have this id
        {"text_sha256": "0" * 64, "accepted": ["1"]},
    )
    found = gather_texts(read_feedback(path), corpus)
    assert (found.texts, found.num_left_out, found.num_unresolved) == ([], 2, 2)


def test_without_a_corpus_only_texts_that_were_kept_are_used(write_feedback):
    path = write_feedback(
        {"text": "dev d", "accepted": ["1"]}, {"document_id": "a", "accepted": ["1"]}
    )
    found = gather_texts(read_feedback(path), None)
    assert [text.text for text in found.texts] == ["dev d"]
    assert found.num_unresolved == 1


def test_documents_of_the_dev_split_are_chosen_by_their_text_alone() -> None:
    texts = [f"text {number}" for number in range(50)]
    chosen = {text for text, is_in in zip(texts, dev_rows(texts, 10), strict=True) if is_in}
    assert len(chosen) == 10
    turned = dev_rows(texts[::-1], 10)
    assert {text for text, is_in in zip(texts[::-1], turned, strict=True) if is_in} == chosen
    assert np.all(dev_rows(texts, 50)) and np.all(dev_rows(texts, 99))
