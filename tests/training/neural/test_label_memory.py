"""Steps that encode some of their labels, and remember the vectors of the others."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
import torch
from torch import nn

from models.encoders.dual_encoder import encode_all
from training.configuration.sections import ClassifierConfig
from training.learning.subset_losses import depl_loss
from training.neural import loop
from training.neural.label_memory import LabelVectors, inclusion_probabilities, systematic_draw
from training.neural.loop import Stages
from training.neural.model import DeplModel
from training.neural.steps import Step, retrieval_step
from training.runtime.machine import Machine

CPU = Machine("cpu", is_bfloat16=False)
ROWS = np.arange(16)
SIZES = {
    "equal": np.ones(9),
    "all zero": np.zeros(9),
    "one of all": np.array([0.0, 0, 0, 1, 0, 0, 0, 0, 0]),
    "few large": np.array([900.0, 800, 3, 2, 1, 1, 1, 0.5, 0]),
    "tiny": np.full(9, 1e-300),
}


@pytest.fixture
def still_model(new_model) -> DeplModel:
    model = new_model().train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_the_chances_add_up_to_the_number_of_draws(sizes, count):
    chances = inclusion_probabilities(sizes, count)
    assert chances.sum() == pytest.approx(count)
    assert chances.min() > 0
    assert chances.max() <= 1 + 1e-12
    by_size = np.argsort(sizes, kind="stable")
    assert np.all(np.diff(chances[by_size]) >= -1e-12)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("count", [1, 4, 8])
def test_each_is_drawn_as_often_as_its_chance_says(sizes, count):
    chances = inclusion_probabilities(sizes, count)
    rng = np.random.default_rng(5)
    draws = np.stack([systematic_draw(chances, rng) for _ in range(4000)])
    assert set(draws.sum(axis=1)) == {count}
    np.testing.assert_allclose(draws.mean(axis=0), chances, atol=0.04)


def test_in_expectation_labels_get_the_gradient_of_all(still_model, texts):
    labels = np.arange(12)
    weight = torch.randn(12, still_model.encoder.dim, generator=torch.Generator().manual_seed(1))
    weight *= torch.arange(12).unsqueeze(1)

    def gradient(vectors_of: LabelVectors, seed: int) -> torch.Tensor:
        still_model.zero_grad()
        vectors = vectors_of(labels, np.random.default_rng(seed), lambda v: (weight * v).sum())
        (weight * vectors).sum().backward()
        return still_model.encoder.label_pooler.weight.grad

    expected = gradient(LabelVectors.of(still_model, texts, "cpu", None), 0)
    some = LabelVectors.of(still_model, texts, "cpu", 4)
    mean = sum(gradient(some, seed) for seed in range(600)) / 600
    assert (mean - expected).norm() < 0.1 * expected.norm()
    assert not torch.allclose(gradient(some, 0), expected, rtol=0.1)


def test_vectors_are_those_of_all_labels_while_no_weight_has_moved(still_model, texts):
    labels = np.array([2, 3, 7, 11, 20])
    expected = encode_all(still_model.encoder, texts.labels, "label", pad_id=texts.pad_id)[labels]
    for most in (None, 1, 3, 5, 100):
        vectors = LabelVectors.of(still_model, texts, "cpu", most)(
            labels, np.random.default_rng(0), torch.sum
        )
        np.testing.assert_allclose(vectors.detach().numpy(), expected, atol=1e-5)


def test_what_is_encoded_is_remembered_and_nothing_else(still_model, texts):
    vectors_of = LabelVectors.of(still_model, texts, "cpu", 2)
    before = still_model.label_memory.clone()
    with torch.no_grad():
        still_model.encoder.label_pooler.weight.mul_(2.0)
    labels = np.array([1, 4, 9, 16])
    vectors = vectors_of(labels, np.random.default_rng(0), torch.sum)
    has_moved = (still_model.label_memory != before).any(dim=1).nonzero().flatten().numpy()
    assert len(has_moved) == 2
    assert set(has_moved) <= set(labels)
    torch.testing.assert_close(still_model.label_memory[labels], vectors.detach())


def step_of(model: DeplModel, texts, subsets, most_encoded: int | None) -> Step:
    return retrieval_step(
        model, texts, subsets, CPU, loss=depl_loss, keep_classifier=True, most_encoded=most_encoded
    )


def test_with_room_for_all_labels_a_step_is_that_without_a_memory(still_model, texts, subsets):
    found = []
    for most_encoded in (None, 1000):
        step = step_of(still_model, texts, subsets, most_encoded)
        still_model.train().zero_grad()
        step(ROWS, np.random.default_rng(3)).backward()
        found.append([p.grad for p in still_model.parameters() if p.grad is not None])
    for pair in zip(*found, strict=True):
        assert torch.equal(*pair)


def test_the_labels_that_cost_most_are_encoded_most(still_model, texts):
    labels = np.arange(10)
    weight = torch.zeros(10, 1)
    weight[3] = 5.0
    vectors_of, times = LabelVectors.of(still_model, texts, "cpu", 2), np.zeros(10)
    for seed in range(50):
        still_model.label_memory.zero_()
        vectors_of(labels, np.random.default_rng(seed), lambda v: (weight * v).sum())
        times += (still_model.label_memory[labels] != 0).any(dim=1).numpy()
    assert times[3] == 50
    assert times.sum() == 100


def test_a_broken_stage_remembers_what_an_unbroken_one_does(
    new_model, texts, subsets, tmp_path, monkeypatch
):
    monkeypatch.setattr(loop, "_CHECKPOINT_EVERY_S", 0.0)
    config = ClassifierConfig(epochs=2, batch_size=16)

    def train(folder, break_at: int | None = None) -> DeplModel:
        model = new_model()
        inner, taken = step_of(model, texts, subsets, 20), count()

        def step(rows, rng):
            if next(taken) == break_at:
                raise KeyboardInterrupt
            return inner(rows, rng)

        Stages(texts, seed=1, machine=CPU, folder=folder).train("stage", model, step, config)
        return model

    whole = train(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "broken", 5)
    resumed = train(tmp_path / "broken").state_dict()
    assert len(resumed["label_memory"]) == len(texts.labels)
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed[name], value), name
