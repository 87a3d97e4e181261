"""Which texts a run puts into its bundle."""

from __future__ import annotations

import shutil

import pytest

from models.bundle.warmup_texts import PROBES_NAME, read_probes
from training.configuration.run import TrainingConfig
from training.data.splits import Split
from training.data.warmup_texts import MAX_CHARACTERS, choose_probes


class Texts(Split):
    """A split that is in memory."""

    def __init__(self, *texts):
        self._texts = texts

    def texts(self):
        return iter(self._texts)

    def _read(self):
        raise NotImplementedError


def split_of(*lengths):
    return Texts(*(chr(97 + place) * length for place, length in enumerate(lengths)))


def test_texts_are_the_middle_ones_of_equal_parts_by_length():
    assert choose_probes(split_of(9, 1, 5, 3, 8, 2), 3) == ["ff", "ccccc", "a" * 9]


@pytest.mark.parametrize("count", range(1, 9))
def test_each_text_is_chosen_once_and_all_where_there_are_no_more(count):
    found = choose_probes(split_of(4, 4, 4, 4, 4, 4, 4), count)
    assert len(set(found)) == min(count, 7)


def test_none_are_chosen_where_none_are_wanted():
    assert choose_probes(split_of(3), 0) == []


def test_long_texts_are_cut():
    assert choose_probes(split_of(MAX_CHARACTERS + 1), 1) == ["a" * MAX_CHARACTERS]


def test_a_run_publishes_training_texts(trained, tiny_texts):
    texts = [document["text"] for document in tiny_texts["train"]]
    found = read_probes(trained.bundle)
    assert len(set(found)) == 16
    assert set(found) <= {text.strip() for text in texts}


@pytest.fixture
def without_texts(trained_sparse, train_in, tiny_config, tiny_corpus, tmp_path):
    shutil.copytree(trained_sparse.work, tmp_path / "work")
    content = tiny_config.model_dump() | {"scorers": ["sparse"], "probes": 0}
    return train_in(tmp_path, TrainingConfig.model_validate(content), tiny_corpus).bundle


def test_a_finished_run_is_published_anew_without_texts(without_texts, trained_sparse):
    assert PROBES_NAME not in without_texts.manifest.files
    assert without_texts.manifest.training["probes"] == 0
    assert without_texts.manifest.digest != trained_sparse.bundle.manifest.digest
