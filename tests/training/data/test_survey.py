"""One pass over the training texts: the sample, the warm-up texts, the scripts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from longtail.models.bundle.warmup_texts import read_probes
from longtail.training.data import survey as module
from longtail.training.data.dataset import open_dataset
from longtail.training.data.survey import rows_by_length, survey


@pytest.fixture
def split_of(tmp_path):
    def make(*texts: str):
        lines = [json.dumps({"text": text, "labels": ["a"]}) for text in texts]
        (tmp_path / "train.jsonl").write_text("\n".join(lines))
        return open_dataset(tmp_path).split("train")

    return make


def test_warm_up_texts_are_the_middle_ones_of_equal_parts_by_length():
    assert rows_by_length(np.array([9, 1, 5, 3, 8, 2]), 3) == [5, 2, 0]


def test_the_sample_lies_at_equal_distances(split_of, monkeypatch):
    monkeypatch.setattr(module, "NUM_SAMPLED", 3)
    letters = "abcdefghijk"
    assert survey(split_of(*letters), 0).sample == ["a", "d", "g"]
    assert survey(split_of("a", "b"), 0).sample == ["a", "b"]


def test_a_run_publishes_training_texts(trained, tiny_texts):
    texts = [document["text"] for document in tiny_texts["train"]]
    found = read_probes(trained.bundle)
    assert len(set(found)) == 16
    assert set(found) <= {text.strip() for text in texts}
