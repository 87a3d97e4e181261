"""Negatives mined by the model itself: against brute force, their cost, and broken stages."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from scipy.sparse import csr_array

from models.encoders.dual_encoder import DualEncoder, encode_all
from models.encoders.pretrained import load_transformer
from models.errors import ConfigError
from models.ranking.top_k import NO_LABEL
from training.configuration.sections import RefreshConfig, RetrievalConfig
from training.learning.subset_losses import depl_loss
from training.neural import loop as stages
from training.neural import mined_negatives as mining
from training.neural.label_subsets import LabelSubsets
from training.neural.loop import Stages
from training.neural.mined_negatives import RefreshedNegatives, hardest_wrong, mixed
from training.neural.model import DeplModel
from training.neural.steps import retrieval_step
from training.runtime.machine import Machine

CPU = Machine("cpu", is_bfloat16=False)
CONFIG = RetrievalConfig(epochs=2, batch_size=16, encoder_learning_rate=1e-2)
STEPS = 8  # of 60 documents, 16 at a time, twice
EVERY = 3
HARD = 3


@pytest.fixture
def new_model(tiny_encoder, texts) -> Callable[[], DeplModel]:
    priors = np.full(texts.truth.shape[1], 0.05, dtype=np.float32)
    return lambda: DeplModel(DualEncoder(load_transformer(tiny_encoder)), priors)


@pytest.fixture
def subsets(texts) -> LabelSubsets:
    hard = np.random.default_rng(0).integers(0, texts.truth.shape[1], (60, HARD))
    return LabelSubsets(texts.truth, hard, 80)


class Stage:
    """A stage of the dual encoder with refreshed negatives, in a folder of its own."""

    def __init__(
        self, model, texts, subsets, folder: Path, *, share: float = 1.0, every: int = EVERY
    ) -> None:
        self.model, self.texts, self.folder = model, texts, folder
        self.mined = RefreshedNegatives(
            model, texts, subsets, RefreshConfig(every_steps=every, share=share), CPU,
            folder=folder / "mined", checkpoints=folder / "retrieval",
        )  # fmt: skip
        self.steps = 0
        self.hard: list[np.ndarray] = []
        """Of the documents of each step."""

    def run(self, *, break_after: int | None = None) -> DeplModel:
        step = retrieval_step(
            self.model, self.texts, self.mined.subsets, CPU, loss=depl_loss, keep_classifier=False
        )

        def recorded(rows, rng):
            if self.steps == break_after:
                raise KeyboardInterrupt
            self.steps += 1
            self.hard.append(self.mined.subsets.hard[rows].copy())
            return step(rows, rng)

        training = Stages(self.texts, seed=1, machine=CPU, folder=self.folder)
        training.train("retrieval", self.model, recorded, CONFIG, self.mined.prepare)
        return self.model


def equal(first: DeplModel, second: DeplModel) -> bool:
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(*pair) for pair in pairs)


def ranked_wrong(scores: np.ndarray, truth: np.ndarray, count: int) -> list[list[int]]:
    """The oracle: sort all labels of each document, and leave out those that it carries."""
    found = []
    for row, carried in zip(scores, truth, strict=True):
        order = sorted(range(len(row)), key=lambda label: -row[label])
        wrong = [label for label in order if not carried[label]][:count]
        found.append(wrong + [NO_LABEL] * (count - len(wrong)))
    return found


# ---- what is mined ----


@pytest.mark.parametrize("most_scores", [1, 40, 2**24])
@pytest.mark.parametrize("count", [1, 4, 12])
def test_the_hardest_wrong_labels_are_those_of_a_full_sort(most_scores, count, monkeypatch):
    monkeypatch.setattr(mining, "_MOST_SCORES", most_scores)
    rng = np.random.default_rng(count)
    documents, labels = (rng.normal(size=(n, 5)).astype(np.float32) for n in (7, 9))
    truth = (rng.random((7, 9)) < 0.4).astype(np.float32)
    truth[3] = 1  # carries every label: nothing is wrong
    found = hardest_wrong(documents, labels, csr_array(truth), count, device="cpu")
    assert found.tolist() == ranked_wrong(documents @ labels.T, truth, count)


def test_no_documents_have_no_negatives():
    nothing = np.empty((0, 5), dtype=np.float32)
    truth = csr_array((0, 9), dtype=np.float32)
    labels = np.ones((9, 5), dtype=np.float32)
    assert hardest_wrong(nothing, labels, truth, 2, device="cpu").shape == (0, 2)


def test_mined_and_other_negatives_take_turns_by_their_shares():
    mined = np.array([[1, 2, 3]])
    others = np.array([[11, 12, 13, 14, 15]])
    assert mixed(mined, others).tolist() == [[1, 11, 2, 12, 3]]
    assert mixed(mined[:, :1], others[:, :3]).tolist() == [[11, 1, 12]]
    assert mixed(mined, others[:, :3]).tolist() == [[1, 2, 3]]


def test_a_label_that_both_name_stands_once_and_padding_last():
    mined = np.array([[1, 2], [5, NO_LABEL]])
    others = np.array([[2, 1, 7, 8], [5, 9, NO_LABEL, NO_LABEL]])
    assert mixed(mined, others).tolist() == [[1, 7, 2, 8], [5, 9, NO_LABEL, NO_LABEL]]


@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_a_mixture_holds_what_was_mined_and_the_first_others(seed, num_mined):
    rng = np.random.default_rng(seed)
    mined = np.array([rng.permutation(9)[:num_mined] for _ in range(4)])
    others = np.array([rng.permutation(9)[:5] for _ in range(4)])
    for row, found in enumerate(mixed(mined, others).tolist()):
        rest = [label for label in others[row].tolist() if label not in mined[row]]
        assert sorted(found) == sorted([*mined[row].tolist(), *rest[: 5 - num_mined]])
        assert [label for label in found if label in mined[row]] == mined[row].tolist()


# ---- when ----


def test_a_refresh_gives_the_coming_documents_the_best_wrong_labels_of_the_model(
    new_model, texts, subsets, tmp_path
):
    model, coming = new_model().train(), np.array([4, 8, 33])
    asked = []

    def documents(start: int, end: int) -> np.ndarray:
        asked.append((start, end))
        return coming

    stage = Stage(model, texts, subsets, tmp_path)
    for step in range(EVERY + 1):
        stage.mined.prepare(step, documents)
    assert asked == [(EVERY, 2 * EVERY)]
    vectors = [
        encode_all(model.encoder, tokens, role, pad_id=0)
        for tokens, role in ((texts.documents, "document"), (texts.labels, "label"))
    ]
    scores = (vectors[0] @ vectors[1].T)[coming]
    found = stage.mined.subsets.hard
    assert found[coming].tolist() == ranked_wrong(scores, texts.truth.toarray()[coming], HARD)
    others = np.setdiff1d(np.arange(60), coming)
    np.testing.assert_array_equal(found[others], subsets.hard[others])


def test_mining_leaves_dropout_on(new_model, texts, subsets, tmp_path):
    model = new_model().train()
    stage = Stage(model, texts, subsets, tmp_path)
    stage.mined.prepare(EVERY, lambda start, end: np.arange(3))
    assert model.encoder.transformer.training


def test_until_the_first_refresh_the_negatives_are_those_given(new_model, texts, subsets, tmp_path):
    stage = Stage(new_model(), texts, subsets, tmp_path)
    before = subsets.hard.copy()
    stage.run()
    given = {tuple(row) for row in before.tolist()}
    of_steps = [{tuple(row) for row in hard.tolist()} for hard in stage.hard]
    assert all(rows <= given for rows in of_steps[:EVERY])
    assert not any(rows & given for rows in of_steps[EVERY:])
    np.testing.assert_array_equal(subsets.hard, before)


def test_a_share_of_the_negatives_stays_as_given(new_model, texts, subsets, tmp_path):
    stage = Stage(new_model(), texts, subsets, tmp_path, share=0.5)
    stage.run()
    mined = load_file(tmp_path / "mined" / "6.safetensors")
    for row, hard in zip(mined["documents"], mined["hard"], strict=True):
        assert set(hard) & set(subsets.hard[row])
        assert len(set(hard) - set(subsets.hard[row])) <= 2  # of three


def test_a_refresh_encodes_the_labels_and_no_more_documents_than_come(
    new_model, texts, subsets, tmp_path, monkeypatch, caplog
):
    sizes = []

    def counted(model, tokens, role, **options):
        sizes.append((role, len(tokens)))
        return encode_all(model, tokens, role, **options)

    monkeypatch.setattr(mining, "encode_all", counted)
    with caplog.at_level(logging.INFO, "training.neural.mined_negatives"):
        Stage(new_model(), texts, subsets, tmp_path).run()
    labels = ("label", len(texts.labels))
    # Steps 3-5 have 12 documents of the first epoch and 32 of the second; 6 and 7 have 28.
    (first, first_size), *rest = sizes
    assert first == "document" and 32 <= first_size <= 44
    assert rest == [labels, ("document", 28), labels]
    assert f"of 28 documents mined among {len(texts.labels)} labels before step 6" in caplog.text


# ---- broken stages ----


@pytest.mark.parametrize("num_steps", [1, 3, 4, 5, 7])
@pytest.mark.parametrize("is_saved_often", [True, False])
def test_a_broken_stage_goes_on_to_the_weights_of_an_unbroken_one(
    new_model, texts, subsets, tmp_path, monkeypatch, num_steps, is_saved_often
):
    model = Stage(new_model(), texts, subsets, tmp_path / "whole", share=0.6).run()
    if is_saved_often:
        monkeypatch.setattr(stages, "_CHECKPOINT_EVERY_S", 0.0)
    broken = Stage(new_model(), texts, subsets, tmp_path / "broken", share=0.6)
    with pytest.raises(KeyboardInterrupt):
        broken.run(break_after=num_steps)
    resumed = Stage(new_model(), texts, subsets, tmp_path / "broken", share=0.6)
    assert equal(resumed.run(), model)
    assert resumed.steps == (STEPS - num_steps if is_saved_often else STEPS)


def test_what_was_mined_is_kept_while_the_newest_checkpoint_may_need_it(
    new_model, texts, subsets, tmp_path, monkeypatch
):
    monkeypatch.setattr(stages, "_CHECKPOINT_EVERY_S", 0.0)
    Stage(new_model(), texts, subsets, tmp_path / "often").run()
    assert [path.name for path in (tmp_path / "often" / "mined").iterdir()] == ["6.safetensors"]
    monkeypatch.setattr(stages, "_CHECKPOINT_EVERY_S", 1e9)
    Stage(new_model(), texts, subsets, tmp_path / "never").run()
    names = {path.name for path in (tmp_path / "never" / "mined").iterdir()}
    assert names == {"3.safetensors", "6.safetensors"}


def test_mined_negatives_that_are_gone_are_told(new_model, texts, subsets, tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "_CHECKPOINT_EVERY_S", 0.0)
    with pytest.raises(KeyboardInterrupt):
        Stage(new_model(), texts, subsets, tmp_path).run(break_after=5)
    shutil.rmtree(tmp_path / "mined")
    with pytest.raises(ConfigError, match="lacks the hard negatives mined at step 3, and the sta"):
        Stage(new_model(), texts, subsets, tmp_path).run()
